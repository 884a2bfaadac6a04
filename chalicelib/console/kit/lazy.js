import { Loading } from "./empty.js";
import { Failed } from "./notice.js";
import { html, useCallback, useEffect, useState } from "./preact.js";

const LOST = { detail: "This part of the console couldn’t be loaded.", hint: "It is tried again once this machine is online. If the server was updated, load the page again." };

/** A part that isn't in the first script; one that couldn't be loaded is tried again when the machine is back online.
 * @template T @param {() => Promise<T>} load @returns {{part: T | null, failure: any}} `failure`: to show in its place */
export function usePart(load) {
  const [part, setPart] = useState(/** @type {{is: T} | null} */ (null));
  const [failed, setFailed] = useState(false);
  const again = useCallback(() => {
    setFailed(false);
    load().then((is) => setPart({ is }), () => setFailed(true));
  }, []);
  useEffect(() => {
    if (part) return;
    again();
    addEventListener("online", again);
    return () => removeEventListener("online", again);
  }, [part]);
  return { part: part && part.is, failure: failed && html`<${Failed} error=${LOST} retry=${again} />` };
}

/** A component that isn't in the first script. @param {() => Promise<(props: any) => any>} load */
export function lazy(load) {
  /** @type {((props: any) => any) | null} */
  let known = null;
  const kept = async () => (known = await load());
  return (/** @type {any} */ props) => {
    const { part, failure } = usePart(kept);
    const Part = part ?? known;
    return Part ? html`<${Part} ...${props} />` : failure || html`<${Loading} />`;
  };
}
