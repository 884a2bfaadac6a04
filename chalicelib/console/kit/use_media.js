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
