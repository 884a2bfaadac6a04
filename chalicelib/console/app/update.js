// Whether the server has another version of this page than the one that is loaded: asked after a break, as of a restart,
// and when somebody comes back to the tab after an hour.
import { live } from "../data/live.js";
import { Button } from "../kit/button.js";
import { Notice } from "../kit/notice.js";
import { html, useEffect, useState } from "../kit/preact.js";
import { scriptOf } from "../lib/script.js";

const SELDOM = 3_600_000; // milliseconds

export function Update() {
  const [other, setOther] = useState(false);
  useEffect(() => {
    let asked = Date.now(), broken = false;
    const look = async () => {
      asked = Date.now();
      const answer = await fetch(document.baseURI.split("#")[0] ?? "", { cache: "no-cache", credentials: "same-origin" }).catch(() => null);
      const theirs = answer?.ok ? scriptOf(await answer.text()) : null; // a proxy's page has none
      if (theirs) setOther(theirs !== scriptOf(document.documentElement.outerHTML));
    };
    const shown = () => document.visibilityState === "visible" && Date.now() - asked > SELDOM && void look();
    const unwatch = live.subscribe((state) => {
      if (state === "live" && broken) void look();
      broken = state === "waiting";
    });
    document.addEventListener("visibilitychange", shown);
    return () => {
      unwatch();
      document.removeEventListener("visibilitychange", shown);
    };
  }, []);
  return other && html`<${Notice} actions=${html`<${Button} small onClick=${() => location.reload()}>Load it again<//>`}><p>The server was updated: this page is of the version before.</p><//>`;
}
