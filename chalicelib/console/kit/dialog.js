// Dialogs: the browser's own, so that focus stays inside and Escape closes them.
import { store } from "../lib/store.js";
import { Button } from "./button.js";
import { TextField } from "./fields.js";
import { html, useEffect, useId, useRef, useState } from "./preact.js";
import { useStore } from "./use_store.js";

/** @param {{title: string, onClose: () => void, onEscape?: () => void, children?: any, actions?: any, onSubmit?: () => void, wide?: boolean, fixed?: boolean}} props
 *  `fixed`: it can't be dismissed. With `onSubmit` its contents are a form. `onEscape`: instead of
 *  closing it. */
export function Dialog({ title, onClose, onEscape, children, actions, onSubmit, wide, fixed }) {
  const ref = useRef(/** @type {any} */ (null));
  const heading = useId();
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    ref.current.showModal();
    return () => {
      if (before?.isConnected) before.focus();
    };
  }, []);
  const cancel = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!fixed) (onEscape ?? onClose)();
  };
  // The browser tells of a second Escape only after the dialog is gone.
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && !event.isComposing && cancel(event);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    onSubmit?.();
  };
  const outside = (/** @type {MouseEvent} */ event) => {
    if (event.target === ref.current && !fixed && !onSubmit) onClose(); // what was typed isn’t lost by a click beside it
  };
  const inside = html`<h2 id=${heading}>${title}</h2><div class="dialog-body">${children}</div>
    ${actions && html`<div class="dialog-actions">${actions}</div>`}`;
  return html`<dialog ref=${ref} class=${wide ? "dialog wide" : "dialog"} aria-labelledby=${heading} onCancel=${cancel} onKeyDown=${onKeyDown} onMouseDown=${outside}>
    ${onSubmit ? html`<form class="dialog-inside" onSubmit=${submit}>${inside}</form>` : html`<div class="dialog-inside">${inside}</div>`}
  </dialog>`;
}

/** @typedef {{title: string, text?: any, action: string, danger?: boolean, typed?: string, cancel?: string}} Question
 *  `typed`: what must be typed before the action can be taken. */
const asked = store(/** @type {(Question & {answer: (yes: boolean) => void})[]} */ ([]));

/** Ask before something that can't be undone. @param {Question} question @returns {Promise<boolean>} */
export function confirm(question) {
  return new Promise((resolve) => {
    const entry = {
      ...question,
      answer: (/** @type {boolean} */ yes) => {
        asked.set(asked.get().filter((each) => each !== entry));
        resolve(yes);
      },
    };
    asked.set([...asked.get(), entry]);
  });
}

export function Confirmations() {
  const [first] = useStore(asked);
  return first ? html`<${Confirmation} key=${first.title} ...${first} />` : null;
}

/** @param {Question & {answer: (yes: boolean) => void}} props */
function Confirmation({ title, text, action, danger, typed, cancel = "Cancel", answer }) {
  const [given, setGiven] = useState("");
  const ready = !typed || given.trim() === typed;
  return html`<${Dialog} title=${title} onClose=${() => answer(false)} onSubmit=${() => ready && answer(true)}
    actions=${html`<${Button} onClick=${() => answer(false)}>${cancel}</${Button}>
      <${Button} type="submit" kind=${danger ? "danger" : "primary"} disabled=${!ready}>${action}</${Button}>`}>
    ${typeof text === "string" ? html`<p>${text}</p>` : text}
    ${typed && html`<${TextField} label=${`Type ${typed} to go on`} value=${given} onInput=${setGiven} autofocus />`}
  </${Dialog}>`;
}
