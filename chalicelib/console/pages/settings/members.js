import { all, send } from "../../data/api.js";
import { useSession } from "../../data/session.js";
import { useLoaded } from "../../data/use_loaded.js";
import { Button } from "../../kit/button.js";
import { Empty } from "../../kit/empty.js";
import { SelectField } from "../../kit/fields.js";
import { FormDialog } from "../../kit/form_dialog.js";
import { html, useState } from "../../kit/preact.js";
import { DeleteButton, Resource, askAndDo, buttons } from "../../kit/resource.js";
import { toast, toastFailure } from "../../kit/toast.js";

/** @typedef {import("../../types").Member} Member */

const ROLES = ["user", "manager", "admin"];

/** @param {{project: string}} props */
export function Members({ project }) {
  const { can, user } = useSession(project);
  const path = `/projects/${encodeURIComponent(project)}/members`;
  const members = useLoaded(() => all(path), [path]);
  const [adding, setAdding] = useState(false);
  const manages = can("manage", project);
  const set = async (/** @type {string} */ name, /** @type {string} */ role) => {
    await send("PUT", `${path}/${encodeURIComponent(name)}`, { role });
    toast(`${name} is ${role} of ${project}.`);
    members.reload();
  };
  const columns = [
    { key: "user", title: "Name", cell: (/** @type {Member} */ member) => html`<b>${member.user}</b>${member.user === user.name && html` <span class="soft">you</span>`}` },
    { key: "role", title: "Role", width: 11, cell: (/** @type {Member} */ member) => (manages ? html`<${SelectField} label=${`Role of ${member.user}`} hideLabel value=${member.role} options=${ROLES}
      onInput=${(/** @type {string} */ role) => set(member.user, role).catch((error) => (toastFailure(error), members.reload()))} />` : member.role) },
    ...(manages || members.value?.some((member) => member.user === user.name) ? [buttons((/** @type {Member} */ member) => (manages || member.user === user.name) && html`<${DeleteButton} label=${`Remove ${member.user}`} onClick=${() => remove(member.user, project, path, members.reload)} />`, 4)] : []),
  ];
  return html`<${Resource} title="Members" loaded=${members} columns=${columns} keyOf=${(/** @type {Member} */ member) => member.user}
      note="Users submit runs; managers add members; admins have the backends, secrets and exports as well." empty=${html`<${Empty} title="Nobody is a member." />`}
      actions=${manages && html`<${Button} small kind="primary" onClick=${() => setAdding(true)}>Add a member<//>`} />
    ${adding && html`<${FormDialog} title="Add a member" action="Add" onClose=${() => setAdding(false)} send=${(/** @type {any} */ { name, role }) => set(name.trim(), role)}
      fields=${[{ key: "name", label: "User", required: true, hint: "The name of somebody who is a user of this server." }, { key: "role", label: "Role", kind: "select", options: ROLES, start: "user" }]} />`}`;
}

/** @param {string} name @param {string} project @param {string} path @param {() => void} reload */
async function remove(name, project, path, reload) {
  const question = { title: `Remove ${name} from ${project}?`, text: "Runs that they submitted go on.", action: "Remove", danger: true };
  if (await askAndDo(question, () => send("DELETE", `${path}/${encodeURIComponent(name)}`), `${name} isn’t a member any more.`)) reload();
}
