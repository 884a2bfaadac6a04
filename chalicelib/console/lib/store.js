// A value that can be watched: what components of different branches of the page share.

/**
 * @template T
 * @param {T} first
 */
export function store(first) {
  let value = first;
  /** @type {Set<(value: T) => void>} */
  const watchers = new Set();
  return {
    get: () => value,
    /** @param {T} next */
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const watch of [...watchers]) watch(value);
    },
    /** @param {(value: T) => void} watch */
    subscribe(watch) {
      watchers.add(watch);
      return () => void watchers.delete(watch);
    },
  };
}
