// A list of things that somebody manages: the table, the button that adds one, and what each row can do.
import { Button } from "./button.js";
import { confirm } from "./dialog.js";
import { Loading } from "./empty.js";
import { Failed } from "./notice.js";
import { Section } from "./page.js";
import { html } from "./preact.js";
import { Table } from "./table.js";
import { toast, toastFailure } from "./toast.js";

/** @param {{title: string, note?: any, loaded: {value: any[] | null, loading: boolean, error: any, reload: () => void}, columns: import("./table.js").Column[],
 *   keyOf: (row: any) => string, empty: any, actions?: any, onOpen?: (row: any) => void}} props */
export function Resource({ title, note, loaded, columns, keyOf, empty, actions, onOpen }) {
  const { value, error, reload } = loaded;
  return html`<${Section} title=${title} note=${note} actions=${actions} flush>
    ${error ? html`<div class="inset"><${Failed} error=${error} retry=${reload} /></div>` : value === null ? html`<${Loading} />`
      : html`<${Table} label=${title} columns=${columns} rows=${value} keyOf=${keyOf} empty=${empty} onOpen=${onOpen} />`}
  <//>`;
}

/** A column of buttons. @param {(row: any) => any} cell @param {number} [width] @returns {import("./table.js").Column} */
export const buttons = (cell, width = 6) => ({ key: "actions", title: html`<span class="unseen">Actions</span>`, align: "right", width, cell });

/** @param {{label: string, onClick: () => void}} props */
export const DeleteButton = ({ label, onClick }) => html`<${Button} small kind="plain" icon="trash" label=${label} onClick=${onClick} />`;

/** Asks, does it, and says so. Returns whether it was done.
 * @param {import("./dialog.js").Question} question @param {() => Promise<any>} act @param {string} said */
export async function askAndDo(question, act, said) {
  if (!(await confirm(question))) return false;
  try {
    await act();
    toast(said);
    return true;
  } catch (error) {
    toastFailure(error);
    return false;
  }
}
