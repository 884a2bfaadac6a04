import { Loading } from "./empty.js";
import { Failed } from "./notice.js";
import { html, useEffect, useState } from "./preact.js";

const LOST = { detail: "This part of the console couldn’t be loaded.", hint: "The server may have been updated: load the page again." };

/** A component that isn't in the first script. @param {() => Promise<(props: any) => any>} load */
export function lazy(load) {
  /** @type {((props: any) => any) | null} */
  let known = null;
  return (/** @type {any} */ props) => {
    const [, setTurn] = useState(0);
    const [failed, setFailed] = useState(false);
    useEffect(() => {
      if (known) return;
      load().then((component) => {
        known = component;
        setTurn(1);
      }, () => setFailed(true));
    }, []);
    if (failed) return html`<${Failed} error=${LOST} />`;
    return known ? html`<${known} ...${props} />` : html`<${Loading} />`;
  };
}
