import { useEffect, useState } from "./preact.js";

/** Whether a media query holds, such as "(max-width: 45rem)".
 * @param {string} query */
export function useMedia(query) {
  const [holds, setHolds] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const changed = () => setHolds(media.matches);
    changed();
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, [query]);
  return holds;
}

export const NARROW = "(max-width: 45rem)";
export const NARROWEST = 45; // rem of a window that isn't narrow

/** The width of the window, in whole rem. */
export function useWindowWidth() {
  const now = () => Math.floor(innerWidth / Number.parseFloat(getComputedStyle(document.documentElement).fontSize));
  const [width, setWidth] = useState(now);
  useEffect(() => {
    const changed = () => setWidth(now());
    addEventListener("resize", changed);
    return () => removeEventListener("resize", changed);
  }, []);
  return width;
}
