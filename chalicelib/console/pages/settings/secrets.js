import { all, send } from "../../data/api.js";
import { useLoaded } from "../../data/use_loaded.js";
import { Button } from "../../kit/button.js";
import { Empty } from "../../kit/empty.js";
import { FormDialog } from "../../kit/form_dialog.js";
import { html, useState } from "../../kit/preact.js";
import { DeleteButton, Resource, askAndDo, buttons } from "../../kit/resource.js";
import { Ago } from "../../kit/time.js";
import { toast } from "../../kit/toast.js";

/** @typedef {import("../../types").Secret} Secret */

/** Names alone: a value is never fetched. @param {{project: string}} props */
export function Secrets({ project }) {
  const path = `/projects/${encodeURIComponent(project)}/secrets`;
  const secrets = useLoaded(() => all(path), [path]);
  const [edited, setEdited] = useState(/** @type {string | null} */ (null)); // a name; empty: a new one
  const save = async (/** @type {any} */ { name, value }) => {
    await send("PUT", `${path}/${encodeURIComponent(name.trim())}`, { value });
    toast(`The secret ${name.trim()} is saved.`);
    secrets.reload();
  };
  const columns = [
    { key: "name", title: "Name", cell: (/** @type {Secret} */ secret) => html`<code>${secret.name}</code>` },
    { key: "updated", title: "Changed", width: 9, wide: true, cell: (/** @type {Secret} */ secret) => html`<${Ago} at=${secret.updated_at} />` },
    buttons((/** @type {Secret} */ secret) => html`<${Button} small onClick=${() => setEdited(secret.name)}>Replace<//> <${DeleteButton} label=${`Delete the secret ${secret.name}`} onClick=${() => remove(secret.name, path, secrets.reload)} />`, 9),
  ];
  return html`<${Resource} title="Secrets" loaded=${secrets} columns=${columns} keyOf=${(/** @type {Secret} */ secret) => secret.name}
      note=${html`A run uses one as <code>${"${{ secrets.NAME }}"}</code>. Values aren’t shown here.`}
      actions=${html`<${Button} small kind="primary" onClick=${() => setEdited("")}>Add a secret<//>`}
      empty=${html`<${Empty} title="No secrets yet." next="Keys of registries and of other services belong here, not into configurations." />`} />
    ${edited !== null && html`<${FormDialog} title=${edited ? `Replace ${edited}` : "Add a secret"} action="Save" onClose=${() => setEdited(null)} send=${save}
      fields=${[{ key: "name", label: "Name", required: true, start: edited, fixed: edited !== "" }, { key: "value", label: "Value", kind: "area", rows: 4, required: true }]} />`}`;
}

/** @param {string} name @param {string} path @param {() => void} reload */
async function remove(name, path, reload) {
  const question = { title: `Delete the secret ${name}?`, text: "Runs that use it can’t start any more. Those that run keep what they have.", action: "Delete", danger: true };
  if (await askAndDo(question, () => send("DELETE", `${path}/${encodeURIComponent(name)}`), `The secret ${name} is deleted.`)) reload();
}
