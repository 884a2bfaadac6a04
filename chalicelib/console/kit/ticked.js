import { html } from "./preact.js";

/** A sentence in which what is between backticks is code.
 * @param {{text: string}} props */
export function Ticked({ text }) {
  return text.split("`").map((part, index) => (index % 2 ? html`<code key=${index}>${part}</code>` : part));
}
