// Light, dark, or as the system has it. The choice stays in this browser.
import { store } from "../lib/store.js";

const KEPT = "dstack-theme";
/** @type {["system", "light", "dark"]} */
export const THEMES = ["system", "light", "dark"];
const kept = localStorage.getItem(KEPT);
export const theme = store(kept === "light" || kept === "dark" ? kept : "system");
apply(theme.get());

/** @param {string} choice */
export function setTheme(choice) {
  if (choice === "system") localStorage.removeItem(KEPT);
  else localStorage.setItem(KEPT, choice);
  theme.set(choice);
  apply(choice);
}

/** @param {string} choice */
function apply(choice) {
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
}
