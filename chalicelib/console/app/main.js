import { html, render } from "../kit/preact.js";
import { arrivalOf } from "../lib/arrival.js";
import { arrive } from "./arrive.js";
import { App } from "./shell.js";

void arrive();
addEventListener("hashchange", () => arrivalOf(location.hash) && void arrive());
const place = /** @type {HTMLElement} */ (document.getElementById("app"));
place.replaceChildren();
render(html`<${App} />`, place);
