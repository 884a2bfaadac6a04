import { post } from "../../data/api.js";
import { useCollection } from "../../data/live.js";
import { useSession } from "../../data/session.js";
import { useLoaded } from "../../data/use_loaded.js";
import { Button } from "../../kit/button.js";
import { confirm } from "../../kit/dialog.js";
import { Empty } from "../../kit/empty.js";
import { FormDialog } from "../../kit/form_dialog.js";
import { html, useState } from "../../kit/preact.js";
import { DeleteButton, Resource, askAndDo, buttons } from "../../kit/resource.js";
import { toast } from "../../kit/toast.js";
import { Problem } from "../../lib/problem.js";

/** @typedef {{name: string, is_global: boolean, imports: {project_name?: string, name?: string}[], exported_fleets: {name?: string, fleet_name?: string}[]}} Export */

/** Fleets that other projects may use. @param {{project: string}} props */
export function Exports({ project }) {
  const path = `/project/${encodeURIComponent(project)}/exports`;
  const exports = useLoaded(() => post(`${path}/list`), [path]);
  const fleets = useCollection("fleets", project).items;
  const { projects, can } = useSession(project);
  const [adding, setAdding] = useState(false);
  const save = async (/** @type {any} */ { name, fleet, to, everybody = false }) => {
    if (!everybody && to.length === 0) throw new Problem({ status: 0, detail: "Choose the projects that may use it." });
    if (everybody && !(await confirm({ title: `Share ${fleet.join(", ")} with all projects?`, text: "Runs of every project, also of later ones, may use its machines.", action: "Share with all" }))) throw new Problem({ status: 0, detail: "Nothing is shared yet." });
    await post(`${path}/create`, { name: name.trim(), exported_fleets: fleet, importer_projects: everybody ? [] : to, is_global: everybody });
    toast(`The export ${name.trim()} is made.`);
    exports.reload();
  };
  const columns = [
    { key: "name", title: "Name", width: 10, cell: (/** @type {Export} */ row) => html`<b>${row.name}</b>` },
    { key: "fleets", title: "Fleets", cell: (/** @type {Export} */ row) => row.exported_fleets.map((each) => each.fleet_name ?? each.name).join(", ") },
    { key: "to", title: "For", cell: (/** @type {Export} */ row) => (row.is_global ? "all projects" : row.imports.map((each) => each.project_name ?? each.name).join(", ")) },
    buttons((/** @type {Export} */ row) => html`<${DeleteButton} label=${`Delete the export ${row.name}`} onClick=${() => remove(row.name, path, exports.reload)} />`, 4),
  ];
  return html`<${Resource} title="Exports" loaded=${exports} columns=${columns} keyOf=${(/** @type {Export} */ row) => row.name} note="Fleets of this project that runs of others may use."
      actions=${fleets.length > 0 && html`<${Button} small kind="primary" onClick=${() => setAdding(true)}>Share a fleet<//>`}
      empty=${html`<${Empty} title="Nothing is shared." next=${fleets.length > 0 ? "Share a fleet, and runs of other projects find its machines." : "Once the project has a fleet, it can be shared with other projects."} />`} />
    ${adding && html`<${FormDialog} title="Share a fleet" action="Share" onClose=${() => setAdding(false)} send=${save} fields=${[
      { key: "name", label: "Name", required: true },
      { key: "fleet", label: "Fleets", kind: "checks", options: fleets.filter((fleet) => fleet.status !== "terminated").map((fleet) => fleet.name) },
      { key: "to", label: "For these projects", kind: "checks", options: projects.filter((each) => each.name !== project).map((each) => each.name) },
      ...(can("server") ? [{ key: "everybody", label: "For all projects", kind: /** @type {const} */ ("check") }] : []),
    ]} />`}`;
}

/** @param {string} name @param {string} path @param {() => void} reload */
async function remove(name, path, reload) {
  const question = { title: `Delete the export ${name}?`, text: "Other projects can’t use its fleets any more.", action: "Delete", danger: true };
  if (await askAndDo(question, () => post(`${path}/delete`, { name }), `The export ${name} is deleted.`)) reload();
}
