import { slotsOf } from "../lib/windows.js";
import { useLayoutEffect, useRef } from "./preact.js";

/** Which element shows which row of a box, by the keys of the rows in sight. An element that comes to show another row
 * gives its focus to the box: nobody's next key is meant for that row.
 * @param {string[]} keys @param {{current: any}} box @param {string} name of the elements' data attribute with the key */
export function useSlots(keys, box, name) {
  const was = useRef(/** @type {Map<string, number>} */ (new Map()));
  const focused = /** @type {HTMLElement | null} */ (document.activeElement?.closest(`[data-${name}]`) ?? null), key = focused?.dataset[name];
  useLayoutEffect(() => {
    if (focused && focused.dataset[name] !== key && box.current.contains(focused)) box.current.focus({ preventScroll: true });
  });
  return (was.current = slotsOf(was.current, keys));
}
