import { useEffect, useState } from "./preact.js";

/**
 * The value of a store; the component is drawn again when it changes.
 * @template T
 * @param {{get: () => T, subscribe: (watch: (value: T) => void) => () => void}} store
 * @returns {T}
 */
export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useEffect(() => {
    setValue(() => store.get());
    return store.subscribe((next) => setValue(() => next));
  }, [store]);
  return value;
}
