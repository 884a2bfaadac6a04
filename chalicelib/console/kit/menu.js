// A button that opens a list of actions or links.
import { classes } from "../lib/classes.js";
import { Icon } from "./icon.js";
import { html, useEffect, useRef, useState } from "./preact.js";

/** @typedef {{title: any, href?: string, icon?: string, onSelect?: () => void, danger?: boolean, current?: boolean}} MenuItem */

/** @param {{title: any, label?: string, items: MenuItem[], kind?: string, icon?: string, start?: boolean, note?: any}} props
 *  `start`: it opens from the button's left edge. */
export function Menu({ title, label, items, kind = "", icon, start, note }) {
  const [open, setOpen] = useState(false);
  const [place, setPlace] = useState({});
  const ref = useRef(/** @type {any} */ (null));
  useEffect(() => {
    if (!open) return;
    const outside = (/** @type {any} */ event) => ref.current?.contains(event.target) === false && setOpen(false);
    const moved = (/** @type {any} */ event) => ref.current?.contains(event.target) === false && setOpen(false);
    document.addEventListener("pointerdown", outside);
    document.addEventListener("focusin", outside);
    addEventListener("scroll", moved, true);
    addEventListener("resize", moved);
    ref.current.querySelector("[role=menuitem]")?.focus({ preventScroll: true });
    return () => {
      removeEventListener("scroll", moved, true);
      removeEventListener("resize", moved);
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("focusin", outside);
    };
  }, [open]);
  const toggle = () => {
    if (!open) setPlace(placeBelow(ref.current.getBoundingClientRect(), Boolean(start)));
    setOpen(!open);
  };
  const close = () => {
    setOpen(false);
    ref.current.querySelector("button").focus();
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const all = [...ref.current.querySelectorAll("[role=menuitem]")];
    const at = all.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Escape" && open) close();
    else if (open && to !== undefined) all.at(to % all.length)?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const select = (/** @type {MenuItem} */ item) => {
    close();
    item.onSelect?.();
  };
  return html`<div class="menu" ref=${ref} onKeyDown=${onKeyDown}>
    <button type="button" class=${classes("button", kind, !title && "bare")} aria-haspopup="menu" aria-expanded=${open} aria-label=${label} onClick=${toggle}>
      ${icon && html`<${Icon} name=${icon} />`}${title}${title && html`<${Icon} name="down" />`}</button>
    ${open && html`<div class="menu-list" style=${place}>
      ${note && html`<p class="menu-note">${note}</p>`}
      <ul role="menu">${items.map((item, number) => html`<li role="none" key=${number}>${
        item.href
          ? html`<a role="menuitem" href=${item.href} aria-current=${item.current ? "true" : undefined} onClick=${() => setOpen(false)}><${Entry} ...${item} /></a>`
          : html`<button role="menuitem" type="button" class=${item.danger ? "danger" : ""} onClick=${() => select(item)}><${Entry} ...${item} /></button>`
      }</li>`)}</ul></div>`}
  </div>`;
}

/** Below its button, or above where there is more room: fixed, because a table that scrolls would cut it off.
 * @param {DOMRect} box @param {boolean} start */
function placeBelow(box, start) {
  const below = innerHeight - box.bottom > 260 || box.top < innerHeight - box.bottom;
  const across = start ? { left: `${box.left}px` } : { right: `${document.documentElement.clientWidth - box.right}px` };
  return { ...across, ...(below ? { top: `${box.bottom + 4}px`, maxHeight: `${innerHeight - box.bottom - 12}px` } : { bottom: `${innerHeight - box.top + 4}px`, maxHeight: `${box.top - 12}px` }) };
}

/** @param {MenuItem} props */
const Entry = ({ icon, title, current }) => html`${icon && html`<${Icon} name=${icon} />`}<span>${title}</span>${current && html`<${Icon} name="check" />`}`;
