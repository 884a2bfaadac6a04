import { html, render } from "../kit/preact.js";
import { arrive } from "./arrive.js";
import { App } from "./shell.js";

void arrive();
const place = /** @type {HTMLElement} */ (document.getElementById("app"));
place.replaceChildren();
render(html`<${App} />`, place);
