import { link } from "../../app/router.js";
import { post } from "../../data/api.js";
import { useSession } from "../../data/session.js";
import { useLoaded } from "../../data/use_loaded.js";
import { Button } from "../../kit/button.js";
import { Empty } from "../../kit/empty.js";
import { html } from "../../kit/preact.js";
import { DeleteButton, Resource, askAndDo, buttons } from "../../kit/resource.js";
import { Ago } from "../../kit/time.js";

/** @typedef {{name: string, type: string, user: string, stored_at: string}} Automation */

/** @param {{project: string}} props */
export function Automations({ project }) {
  const path = `/project/${encodeURIComponent(project)}/automations`;
  const { can, user } = useSession(project);
  const stored = useLoaded(() => post(`${path}/list`), [path]);
  const columns = [
    { key: "name", title: "Name", cell: (/** @type {Automation} */ row) => html`<b>${row.name}</b>` },
    { key: "type", title: "Kind", width: 8, cell: (/** @type {Automation} */ row) => row.type },
    { key: "user", title: "In the name of", width: 9, cell: (/** @type {Automation} */ row) => row.user },
    { key: "stored", title: "Stored", width: 7, wide: true, cell: (/** @type {Automation} */ row) => html`<${Ago} at=${row.stored_at} />` },
    buttons((/** @type {Automation} */ row) => (row.user === user.name || can("manage", project)) && html`<${DeleteButton} label=${`Delete the automation ${row.name}`} onClick=${() => remove(row.name, path, stored.reload)} />`, 4),
  ];
  return html`<${Resource} title="Automations" loaded=${stored} columns=${columns} keyOf=${(/** @type {Automation} */ row) => row.name}
    note="Configurations that rules apply when something happens: a run when another has failed, for instance."
    actions=${can("run", project) && html`<${Button} small kind="primary" href=${link(project, "launch", { store: "rules" })}>Store one<//>`}
    empty=${html`<${Empty} title="No configuration is stored." next=${html`Store one here, or with <code>dstack automation add -f retrain.dstack.yml</code>; rules in the server’s file name it.`} />`} />`;
}

/** @param {string} name @param {string} path @param {() => void} reload */
async function remove(name, path, reload) {
  const question = { title: `Delete ${name}?`, text: "Rules that name it do nothing from then on.", action: "Delete", danger: true };
  if (await askAndDo(question, () => post(`${path}/delete`, { names: [name] }), `${name} is deleted.`)) reload();
}
