// A table of any length: rows in sight are drawn, the rest is two empty rows as high as what they stand for.
import { classes } from "../lib/classes.js";
import { sorted } from "../lib/sorting.js";
import { windowOf } from "../lib/windows.js";
import { Icon } from "./icon.js";
import { html, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { NARROWEST, useWindowWidth } from "./use_media.js";
import { useSlots } from "./use_slots.js";

/**
 * @typedef {{key: string, title: any, align?: "right", width?: number, least?: number, wide?: boolean | number, plain?: boolean,
 *   value?: (row: any) => any, cell?: (row: any) => any}} Column
 *   `width` in rem; without, a share of the rest, at `least` so much. `wide`: left out of narrow windows, or of those of
 *   fewer rem. Without `value` it isn't sorted by.
 * @typedef {{columns: Column[], rows: any[], keyOf: (row: any) => string, label: string, empty?: any,
 *   sort?: {key: string, down: boolean}, onSort?: (sort: {key: string, down: boolean}) => void,
 *   onOpen?: (row: any) => void, selection?: {ids: Set<string>, onChange: (ids: Set<string>) => void, nameOf?: (row: any) => string},
 *   rowHeight?: number, tall?: boolean, reuse?: boolean}} TableProps
 *   `tall`: as high as the window allows, for the table that a page is about. `reuse`: an element may show one row after
 *   another, for long tables whose cells have no state of their own.
 */

const ROW = 36; // pixels
const FLEXIBLE = 9; // rem that a column without a width has at least
const CHECKS = 2.5; // rem of the column of boxes
const RESTS = 80; // milliseconds after which a box no longer scrolls

/** @param {TableProps} props */
export function Table(props) {
  const { columns, rows, keyOf, label, empty, sort, onSort, onOpen, selection, rowHeight = ROW, tall, reuse } = props;
  const room = useWindowWidth();
  const shown = useMemo(() => columns.filter((column) => !column.wide || room >= (column.wide === true ? NARROWEST : column.wide)), [columns, room]);
  const ordered = useMemo(() => {
    const by = sort && columns.find((column) => column.key === sort.key);
    return by?.value && sort ? sorted(rows, by.value, sort.down) : rows;
  }, [rows, sort?.key, sort?.down, columns]);
  const { ref, first, last } = useWindow(ordered.length, rowHeight);
  const drawn = ordered.slice(first, last), slots = useSlots(drawn.map(keyOf), ref, "row");
  const [cursor, setCursor] = useState(-1);
  const moved = useRef(false);
  useEffect(() => { // the focus follows, so that screen readers read the row
    const row = moved.current && ref.current?.querySelector(`tr[aria-rowindex="${cursor + 2}"]`);
    if (!row) return;
    moved.current = false;
    row.focus({ preventScroll: true });
  }, [cursor, first, last]);
  const onKeyDown = useRowKeys({ rows: ordered, cursor, setCursor, moved, keyOf, onOpen, selection, ref, rowHeight });
  if (rows.length === 0 && empty) return empty;

  const width = shown.reduce((sum, column) => sum + (column.width ?? column.least ?? FLEXIBLE), selection ? CHECKS : 0);
  const total = shown.length + (selection ? 1 : 0);
  return html`<div class=${tall ? "table-box tall" : "table-box"} ref=${ref} tabindex="0" role="region" aria-label=${label} data-table onKeyDown=${onKeyDown}>
    <table aria-rowcount=${ordered.length + 1} aria-label=${label} style=${{ minWidth: `${width}rem` }}>
      <colgroup>${selection && html`<col style=${{ width: `${CHECKS}rem` }} />`}
        ${shown.map((column) => html`<col key=${column.key} style=${column.width ? { width: `${column.width}rem` } : {}} />`)}</colgroup>
      <thead><tr aria-rowindex="1">
        ${selection && html`<th class="checks" scope="col"><${CheckAll} rows=${ordered} keyOf=${keyOf} selection=${selection} /></th>`}
        ${shown.map((column) => html`<${Head} key=${column.key} column=${column} sort=${sort} onSort=${onSort} />`)}
      </tr></thead>
      <tbody ...${useRowClicks({ rows: ordered, keyOf, setCursor, onOpen, selection })}>
        ${first > 0 && html`<tr key="above" aria-hidden="true" class="space"><td colspan=${total} style=${{ height: `${first * rowHeight}px` }}></td></tr>`}
        ${drawn.map((row, number) => {
          const at = first + number, id = keyOf(row);
          return html`<${Row} key=${reuse ? slots.get(id) : id} row=${row} id=${id} columns=${shown} at=${at} height=${rowHeight} current=${at === cursor}
            opens=${!!onOpen} nameOf=${selection && (selection.nameOf ?? keyOf)} chosen=${selection?.ids.has(id)} />`;
        })}
        ${last < ordered.length && html`<tr key="below" aria-hidden="true" class="space"><td colspan=${total} style=${{ height: `${(ordered.length - last) * rowHeight}px` }}></td></tr>`}
      </tbody>
    </table>
    <div class="veil" hidden></div>
  </div>`;
}

/** The rows in sight of a box that scrolls.
 * @param {number} count @param {number} rowHeight */
function useWindow(count, rowHeight) {
  const ref = useRef(/** @type {any} */ (null));
  const [range, setRange] = useState({ first: 0, last: Math.min(count, 60) });
  const measure = useCallback(() => {
    const box = ref.current;
    if (!box) return;
    const next = windowOf(box.scrollTop, box.clientHeight || 800, rowHeight, count);
    setRange((was) => (was.first === next.first && was.last === next.last ? was : next));
  }, [count, rowHeight]);
  useLayoutEffect(measure, [measure]);
  useEffect(() => {
    const box = ref.current;
    if (!box) return;
    const watched = new ResizeObserver(measure);
    watched.observe(box);
    let timer = 0;
    const scrolled = () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => { box.lastChild.hidden = true; }, RESTS);
      box.lastChild.hidden = false;
      measure();
    };
    box.addEventListener("scroll", scrolled, { passive: true });
    return () => {
      watched.disconnect();
      clearTimeout(timer);
      box.removeEventListener("scroll", scrolled);
    };
  }, [measure, count === 0]);
  return { ref, first: Math.min(range.first, count), last: Math.min(range.last, count) };
}

/** `j` and `k` move along the rows, Enter opens one, `x` selects it.
 * @param {any} given */
function useRowKeys({ rows, cursor, setCursor, moved, keyOf, onOpen, selection, ref, rowHeight }) {
  return (/** @type {KeyboardEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = /** @type {HTMLElement} */ (event.target);
    const inField = target.matches("input:not([type=checkbox]), textarea, select");
    if (inField) return;
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (step) {
      const next = Math.max(0, Math.min(rows.length - 1, cursor + step));
      moved.current = true;
      setCursor(next);
      reveal(ref.current, next, rowHeight);
    } else if (event.key === "Enter" && (target === ref.current || target.matches("tr")) && rows[cursor] && onOpen) onOpen(rows[cursor]);
    else if (event.key === "x" && rows[cursor] && selection) toggle(selection, keyOf(rows[cursor]));
    else return;
    event.preventDefault();
  };
}

/** What is done with the pointer, heard once for all rows.
 * @param {any} given */
function useRowClicks({ rows, keyOf, setCursor, onOpen, selection }) {
  const atOf = (/** @type {Event} */ event) => Number(/** @type {HTMLElement} */ (event.target).closest("tr")?.getAttribute("aria-rowindex")) - 2;
  return {
    onClick(/** @type {MouseEvent} */ event) {
      const at = atOf(event);
      if (!rows[at]) return;
      setCursor(at);
      const busy = /** @type {HTMLElement} */ (event.target).closest("a, button, input, label, select") || String(getSelection());
      if (!busy && onOpen) onOpen(rows[at]);
    },
    onChange(/** @type {Event} */ event) {
      if (/** @type {HTMLElement} */ (event.target).matches(".checks input")) toggle(selection, keyOf(rows[atOf(event)]));
    },
  };
}

/** @param {HTMLElement} box @param {number} at @param {number} rowHeight */
function reveal(box, at, rowHeight) {
  const head = box.querySelector("thead")?.getBoundingClientRect().height ?? 0;
  const top = at * rowHeight;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + rowHeight + head > box.scrollTop + box.clientHeight) box.scrollTop = top + rowHeight + head - box.clientHeight;
}

/** @param {{ids: Set<string>, onChange: (ids: Set<string>) => void}} selection @param {string} id */
function toggle(selection, id) {
  const next = new Set(selection.ids);
  if (!next.delete(id)) next.add(id);
  selection.onChange(next);
}

/** @param {{column: Column, sort: any, onSort: any}} props */
function Head({ column, sort, onSort }) {
  const by = sort?.key === column.key;
  const order = by ? (sort.down ? "descending" : "ascending") : undefined;
  const inside = column.value && onSort
    ? html`<button type="button" onClick=${() => onSort({ key: column.key, down: by ? !sort.down : column.align === "right" })}>
        ${column.title}${by && html`<${Icon} name=${sort.down ? "down" : "up"} />`}</button>`
    : column.title;
  return html`<th scope="col" class=${column.align} aria-sort=${order}>${inside}</th>`;
}

/** @param {{rows: any[], keyOf: (row: any) => string, selection: any}} props */
function CheckAll({ rows, keyOf, selection }) {
  const all = rows.length > 0 && rows.every((row) => selection.ids.has(keyOf(row)));
  const some = !all && selection.ids.size > 0;
  return html`<input type="checkbox" aria-label="Select all" checked=${all} indeterminate=${some}
    onChange=${() => selection.onChange(all ? new Set() : new Set(rows.map(keyOf)))} />`;
}

/** @param {any} props */
function Row({ row, id, columns, at, height, current, opens, nameOf, chosen }) {
  // The same markup again is skipped altogether: scrolling draws only rows that weren't there.
  return useMemo(() => html`<tr tabindex="-1" data-row=${id} aria-rowindex=${at + 2} class=${classes(current && "current", chosen && "chosen", opens && "opens")} style=${{ height: `${height}px` }}>
    ${nameOf && html`<td class="checks"><input type="checkbox" aria-label=${`Select ${nameOf(row)}`} checked=${chosen} /></td>`}
    ${columns.map((/** @type {Column} */ column) => html`<td key=${column.key} class=${classes(column.align, column.plain && "whole")}>${column.cell ? column.cell(row) : column.value?.(row)}</td>`)}
  </tr>`, [row, id, columns, at, height, current, opens, nameOf, chosen]);
}
