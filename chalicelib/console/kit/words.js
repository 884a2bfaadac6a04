import { html } from "./preact.js";

/** A text of the API's, in which names are between backticks.
 * @param {{text: string}} props */
export const Words = ({ text }) => html`${text.split("`").map((part, at) => (at % 2 ? html`<code key=${at}>${part}</code>` : part))}`;
