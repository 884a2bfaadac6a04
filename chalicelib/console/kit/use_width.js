import { useEffect, useRef, useState } from "./preact.js";

/** The width of an element in pixels, as it changes. */
export function useWidth() {
  const ref = useRef(/** @type {any} */ (null));
  const [width, setWidth] = useState(640);
  useEffect(() => {
    const watched = new ResizeObserver(() => setWidth(Math.max(200, ref.current?.clientWidth ?? 0)));
    watched.observe(ref.current);
    return () => watched.disconnect();
  }, []);
  return { ref, width };
}
