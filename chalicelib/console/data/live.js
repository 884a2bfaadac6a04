// Lists of what there is. They are loaded once; `refresh` loads one again.
import { useEffect, useState } from "../kit/preact.js";
import { store } from "../lib/store.js";
import { useStore } from "../kit/use_store.js";
import { all } from "./api.js";

/** @typedef {import("../types").Kind} Kind */
/** @template T @typedef {{items: T[], loading: boolean, error: any, changedAt: number}} Collection */

/** @type {Map<string, ReturnType<typeof store<Collection<any>>>>} */
const collections = new Map();
export const live = store(/** @type {"live" | "waiting" | "off"} */ ("off"));

/** @param {Kind} kind @param {string | null} project */
function collectionOf(kind, project) {
  const key = `${project ?? ""}/${kind}`;
  let found = collections.get(key);
  if (!found) {
    found = store(/** @type {Collection<any>} */ ({ items: [], loading: true, error: null, changedAt: 0 }));
    collections.set(key, found);
    void refresh(kind, project);
  }
  return found;
}

/** Loads a list again, after something was done. @param {Kind} kind @param {string | null} project */
export async function refresh(kind, project) {
  const found = collectionOf(kind, project);
  try {
    const items = await all(project ? `/projects/${encodeURIComponent(project)}/${kind}` : `/${kind}`);
    found.set({ items, loading: false, error: null, changedAt: Date.now() });
  } catch (error) {
    found.set({ ...found.get(), loading: false, error });
  }
}

/**
 * @template {Kind} K
 * @param {K} kind @param {string | null} project null: of all projects
 * @returns {Collection<import("../types").Items[K]>}
 */
export function useCollection(kind, project) {
  return useStore(collectionOf(kind, project));
}

/** One of them, by its id or name.
 * @template {Kind} K
 * @param {K} kind @param {string | null} project @param {string} id
 * @returns {{item: import("../types").Items[K] | undefined, loading: boolean, error: any}} */
export function useItem(kind, project, id) {
  const { items, loading, error } = useCollection(kind, project);
  return { item: items.find((each) => each.id === id || each.name === id), loading, error };
}

/** Calls `fn` now and every so many seconds, but not in a hidden tab. @param {() => any} fn @param {number} seconds @param {any[]} [inputs] */
export function usePolling(fn, seconds, inputs = []) {
  const [, setTurn] = useState(0);
  useEffect(() => {
    let timer = 0, over = false;
    const turn = async () => {
      clearTimeout(timer);
      if (document.visibilityState === "visible") await fn();
      if (!over) timer = window.setTimeout(turn, seconds * 1000);
    };
    const shown = () => document.visibilityState === "visible" && void turn();
    document.addEventListener("visibilitychange", shown);
    void turn().then(() => !over && setTurn((number) => number + 1));
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [seconds, ...inputs]);
}
