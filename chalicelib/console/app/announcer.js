// Says which runs have changed, to screen readers, and not more often than somebody can listen.
import { useCollection } from "../data/live.js";
import { html, useEffect, useRef, useState } from "../kit/preact.js";
import { changedSince, sentence, statusesOf } from "../lib/announce.js";

const EVERY = 10_000; // milliseconds

/** @param {{project: string | null}} props */
export function Announcer({ project }) {
  const { items, loading } = useCollection("runs", project);
  const known = useRef(/** @type {Map<string, string> | null} */ (null));
  const timer = useRef(0);
  const latest = useRef(items);
  const [text, setText] = useState("");
  latest.current = items;
  useEffect(() => {
    known.current = null;
    return () => {
      clearTimeout(timer.current);
      timer.current = 0;
    };
  }, [project]);
  useEffect(() => {
    if (loading) return;
    known.current ??= statusesOf(items); // what was there at first is no news
    if (timer.current || changedSince(known.current, items).length === 0) return;
    timer.current = window.setTimeout(() => {
      timer.current = 0;
      setText(sentence(changedSince(known.current ?? new Map(), latest.current)));
      known.current = statusesOf(latest.current);
    }, EVERY);
  }, [items, loading]);
  return html`<p class="unseen" aria-live="polite">${text}</p>`;
}
