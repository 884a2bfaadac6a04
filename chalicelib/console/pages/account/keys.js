import { post } from "../../data/api.js";
import { useLoaded } from "../../data/use_loaded.js";
import { Button } from "../../kit/button.js";
import { Empty } from "../../kit/empty.js";
import { FormDialog } from "../../kit/form_dialog.js";
import { html, useState } from "../../kit/preact.js";
import { DeleteButton, Resource, askAndDo, buttons } from "../../kit/resource.js";
import { Ago } from "../../kit/time.js";
import { toast } from "../../kit/toast.js";

/** @typedef {{id: string, name: string, type: string, fingerprint: string, added_at: string}} Key */

const PATH = "/users/public_keys";

/** SSH keys that open one's jobs. */
export function Keys() {
  const keys = useLoaded(() => post(`${PATH}/list`), []);
  const [adding, setAdding] = useState(false);
  const save = async (/** @type {any} */ { key, name }) => {
    await post(`${PATH}/add`, { key: key.trim(), name: name.trim() || null });
    toast("The key is added.");
    keys.reload();
  };
  const columns = [
    { key: "name", title: "Name", width: 7, cell: (/** @type {Key} */ row) => html`<b>${row.name}</b>` },
    { key: "fingerprint", title: "Fingerprint", least: 9, cell: (/** @type {Key} */ row) => html`<code title=${row.fingerprint}>${row.fingerprint}</code>` },
    { key: "type", title: "Kind", width: 8, wide: true, cell: (/** @type {Key} */ row) => row.type },
    { key: "added", title: "Added", width: 7, wide: true, cell: (/** @type {Key} */ row) => html`<${Ago} at=${row.added_at} />` },
    buttons((/** @type {Key} */ row) => html`<${DeleteButton} label=${`Delete the key ${row.name}`} onClick=${() => remove(row, keys.reload)} />`, 4),
  ];
  return html`<${Resource} title="SSH keys" loaded=${keys} columns=${columns} keyOf=${(/** @type {Key} */ row) => row.id} note="Whoever has the private half of one can log in to your jobs."
      actions=${html`<${Button} small onClick=${() => setAdding(true)}>Add a key<//>`}
      empty=${html`<${Empty} title="No keys of your own." next="The command line has one that it makes by itself; add others to log in from elsewhere." />`} />
    ${adding && html`<${FormDialog} title="Add an SSH key" action="Add" onClose=${() => setAdding(false)} send=${save}
      fields=${[{ key: "key", label: "Public key", kind: "area", rows: 4, required: true, hint: "The line in a file such as ~/.ssh/id_ed25519.pub." }, { key: "name", label: "Name", hint: "Empty: the comment at the end of the key." }]} />`}`;
}

/** @param {Key} row @param {() => void} reload */
async function remove(row, reload) {
  const question = { title: `Delete the key ${row.name}?`, text: "It opens no job that starts from now on.", action: "Delete", danger: true };
  if (await askAndDo(question, () => post(`${PATH}/delete`, { ids: [row.id] }), "The key is deleted.")) reload();
}
