// Keys of the whole page. None fires while something is typed, and all can be switched off.
import { store } from "../lib/store.js";

const KEPT = "dstack-keys";
const PATIENCE = 1500; // milliseconds between `g` and what follows
export const keysOn = store(localStorage.getItem(KEPT) !== "off");

/** @param {boolean} on */
export function setKeys(on) {
  if (on) localStorage.removeItem(KEPT);
  else localStorage.setItem(KEPT, "off");
  keysOn.set(on);
}

/** @typedef {{keys: string, text: string, act: (event: KeyboardEvent) => void}} Shortcut `keys`: "g r", "/", "?" */
/** @type {Set<Shortcut>} */
const shortcuts = new Set();
let first = "", firstAt = 0;

/** Adds keys, and returns what removes them. @param {Shortcut[]} given */
export function listen(given) {
  for (const each of given) shortcuts.add(each);
  return () => given.forEach((each) => shortcuts.delete(each));
}

export const listed = () => [...shortcuts];

/** @param {EventTarget | null} target */
const typing = (target) => target instanceof Element && target.matches("input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select, [contenteditable=true]");

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!keysOn.get() || typing(event.target) || document.querySelector("dialog[open]")) return;
  const now = event.timeStamp;
  const pressed = first && now - firstAt < PATIENCE ? `${first} ${event.key}` : event.key;
  first = "";
  const found = [...shortcuts].findLast((each) => each.keys === pressed);
  if (found) {
    event.preventDefault();
    found.act(event);
  } else if ([...shortcuts].some((each) => each.keys.startsWith(`${event.key} `))) {
    first = event.key;
    firstAt = now;
  }
});
