// The lines of a log that are in sight, of however many there are. Lines are drawn in place of the rows that they take.
import { html, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../kit/preact.js";
import { useSlots } from "../../kit/use_slots.js";
import { spans, unshown } from "../../lib/ansi.js";
import { Rows, marked } from "../../lib/log_lines.js";

/** @typedef {import("../../lib/log_lines.js").LogLines} LogLines */
/** @typedef {import("../../lib/log_lines.js").Query} Query */

const ROW = 20; // pixels, as in the style sheet
const AROUND = 12; // rows above and below

/**
 * @param {{lines: LogLines, version: number, numbered: boolean, follow: boolean, onFollow: (follow: boolean) => void, wrap: boolean, times: boolean,
 *   query: Query | null, only: number[] | null, selected: {from: number, to: number} | null, current: number | null,
 *   target: {number: number, turn: number} | null, hrefOf: (number: number) => string, onLine: (number: number, extended: boolean) => void}} props
 *   `only`: indices of the lines that are shown; `target`: a line to scroll to, once each turn.
 */
export function LogView(props) {
  const { lines, version, numbered, follow, onFollow, wrap, times, only, target } = props;
  const box = useRef(/** @type {any} */ (null));
  const probe = useRef(/** @type {any} */ (null));
  const [scrolled, setScrolled] = useState({ top: 0, height: 600 });
  const columns = useColumns(box, probe, wrap, times, numbered);
  const rows = useMemo(() => new Rows(), [lines]);
  useMemo(() => rows.fit(lines, columns, only), [lines, version, columns, only]);
  const measure = useCallback(() => {
    const { scrollTop: top, clientHeight: height } = box.current;
    setScrolled((was) => (was.top === top && was.height === height ? was : { top, height }));
  }, []);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    const atEnd = scrollTop + clientHeight >= scrollHeight - ROW / 2;
    if (atEnd !== follow) onFollow(atEnd);
    measure();
  };
  useLayoutEffect(() => {
    if (follow) box.current.scrollTop = box.current.scrollHeight;
    measure();
  }, [follow, rows.total, version, columns]);
  useEffect(() => {
    if (!target || lines.last < target.number) return;
    const entry = only ? only.findIndex((index) => lines.first + index >= target.number) : lines.indexOf(target.number);
    box.current.scrollTop = Math.max(0, rows.start(Math.max(0, entry)) * ROW - box.current.clientHeight / 3);
    measure();
  }, [target, lines.last >= (target?.number ?? 0)]);

  const first = rows.at(Math.floor(scrolled.top / ROW) - AROUND);
  const last = rows.at(Math.ceil((scrolled.top + scrolled.height) / ROW) + AROUND);
  const entries = Array.from({ length: rows.count === 0 ? 0 : last - first + 1 }, (_, place) => (only ? /** @type {number} */ (only[first + place]) : first + place));
  const slots = useSlots(entries.map((index) => String(lines.first + index)), box, "line");
  return html`<div class=${`log-box${wrap ? " wrapped" : ""}`} ref=${box} tabindex="0" role="region" aria-label="Log" onScroll=${onScroll}>
    <span class="log-probe" aria-hidden="true" ref=${probe}>${"0".repeat(100)}</span>
    <div class="log-space" style=${{ height: `${rows.total * ROW}px` }}>
      <div class="log-window" style=${{ transform: `translateY(${rows.start(first) * ROW}px)` }}>
        ${entries.map((index) => html`<${LogLine} key=${slots.get(String(lines.first + index))} ...${props} line=${lines.line(index)} />`)}
      </div>
    </div>
  </div>`;
}

/** How many characters a row has; 0 where lines aren't wrapped.
 * @param {any} box @param {any} probe @param {boolean} wrap @param {boolean} times @param {boolean} numbered */
function useColumns(box, probe, wrap, times, numbered) {
  const [columns, setColumns] = useState(0);
  useLayoutEffect(() => {
    const measure = () => {
      const character = probe.current.getBoundingClientRect().width / 100;
      const text = box.current.querySelector(".log-text");
      const room = text ? box.current.clientWidth - (text.getBoundingClientRect().left - box.current.getBoundingClientRect().left) - 12 : 0;
      setColumns(wrap && character > 0 && room > 0 ? Math.max(10, Math.floor(room / character)) : 0);
    };
    measure();
    const watched = new ResizeObserver(measure);
    watched.observe(box.current);
    return () => watched.disconnect();
  }, [wrap, times, numbered]);
  return columns;
}

/** @param {any} props */
function LogLine({ line, numbered, times, query, selected, current, hrefOf, onLine }) {
  const { number, at, raw, style } = line;
  const chosen = selected && number >= selected.from && number <= selected.to;
  const more = unshown(raw);
  const click = (/** @type {MouseEvent} */ event) => {
    event.preventDefault();
    onLine(number, event.shiftKey);
  };
  return html`<div class=${`log-line${chosen ? " chosen" : ""}${number === current ? " current" : ""}`} data-line=${number}>
    ${numbered && html`<a class="log-number" href=${hrefOf(number)} onClick=${click} aria-label=${`Line ${number}`}>${number}</a>`}
    ${times && html`<time class="log-time" datetime=${at} title=${at}>${at.slice(11, 23)}</time>`}
    <span class="log-text" dir="auto">${marked(spans(raw, style), query).map(({ text, classes, found }, index) =>
      found ? html`<mark key=${index} class=${classes}>${text}</mark>` : classes ? html`<span key=${index} class=${classes}>${text}</span>` : text)}
      ${more > 0 && html`<em class="log-more"> … ${more.toLocaleString("en")} more characters, in the download</em>`}</span>
  </div>`;
}
