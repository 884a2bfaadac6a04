import { load } from "../data/session.js";
import { token } from "../data/token.js";
import { html, render } from "../kit/preact.js";
import { App } from "./shell.js";

if (token.get() !== null) void load();
const place = /** @type {HTMLElement} */ (document.getElementById("app"));
place.replaceChildren();
render(html`<${App} />`, place);
