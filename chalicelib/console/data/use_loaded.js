import { useCallback, useEffect, useState } from "../kit/preact.js";

/**
 * What a call answers, for a page that shows it: loaded when the inputs change, and again when asked to.
 * @template T
 * @param {() => Promise<T>} fetch @param {any[]} inputs
 * @returns {{value: T | null, loading: boolean, error: any, reload: () => void}}
 */
export function useLoaded(fetch, inputs) {
  const [turn, setTurn] = useState(0);
  const [state, setState] = useState(/** @type {{value: T | null, loading: boolean, error: any}} */ ({ value: null, loading: true, error: null }));
  useEffect(() => {
    let over = false;
    setState((was) => ({ ...was, loading: true }));
    fetch().then(
      (value) => !over && setState({ value, loading: false, error: null }),
      (error) => !over && setState({ value: null, loading: false, error }),
    );
    return () => {
      over = true;
    };
  }, [...inputs, turn]);
  const reload = useCallback(() => setTurn((was) => was + 1), []);
  return { ...state, reload };
}
