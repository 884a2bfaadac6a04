import { get, post, send } from "../../data/api.js";
import { useLoaded } from "../../data/use_loaded.js";
import { Button } from "../../kit/button.js";
import { Empty } from "../../kit/empty.js";
import { FormDialog } from "../../kit/form_dialog.js";
import { html, useState } from "../../kit/preact.js";
import { DeleteButton, Resource, askAndDo, buttons } from "../../kit/resource.js";
import { Status } from "../../kit/status.js";
import { Ago } from "../../kit/time.js";
import { toast, toastFailure } from "../../kit/toast.js";

/** @typedef {import("../../types").Backend} Backend */
/** @typedef {Record<string, {state: "checking" | "good" | "bad", why: string}>} Checks */

/** @param {{project: string}} props */
export function Backends({ project }) {
  const v1 = `/projects/${encodeURIComponent(project)}/backends`, older = `/project/${encodeURIComponent(project)}/backends`;
  const backends = useLoaded(async () => /** @type {Backend[]} */ ((await get(v1)).items), [v1]);
  const [checks, setChecks] = useState(/** @type {Checks} */ ({}));
  const [edited, setEdited] = useState(/** @type {{type: string | null, text: string} | null} */ (null));
  const check = async (/** @type {string} */ type) => {
    const say = (/** @type {Checks[string]} */ found) => setChecks((was) => ({ ...was, [type]: found }));
    say({ state: "checking", why: "" });
    try {
      await post(`${older}/${type}/check`);
      say({ state: "good", why: "" });
    } catch (error) {
      say({ state: "bad", why: /** @type {any} */ (error).detail ?? String(error) });
    }
  };
  const edit = async (/** @type {string} */ type) => {
    try {
      setEdited({ type, text: (await post(`${older}/${type}/get_yaml`)).config_yaml });
    } catch (error) {
      toastFailure(error);
    }
  };
  const save = async (/** @type {any} */ { config_yaml }) => {
    await post(`${older}/${edited?.type ? "update_yaml" : "create_yaml"}`, { config_yaml });
    toast("The backend is saved.");
    backends.reload();
  };
  const columns = [
    { key: "type", title: "Backend", width: 9, cell: (/** @type {Backend} */ backend) => html`<b>${backend.type}</b>` },
    { key: "check", title: "Check", cell: (/** @type {Backend} */ backend) => html`<${Check} check=${checks[backend.type]} />` },
    { key: "source", title: "From", width: 9, wide: true, cell: (/** @type {Backend} */ backend) => (backend.source === "file" ? "the server’s file" : "here") },
    { key: "changed", title: "Changed", width: 7, wide: true, cell: (/** @type {Backend} */ backend) => html`<${Ago} at=${backend.changed_at} />` },
    buttons((/** @type {Backend} */ backend) => html`<${Button} small onClick=${() => check(backend.type)} busy=${checks[backend.type]?.state === "checking"}>Check<//>
      ${backend.source === "api" && html` <${Button} small onClick=${() => edit(backend.type)}>Edit<//> <${DeleteButton} label=${`Delete the backend ${backend.type}`} onClick=${() => remove(backend.type, project, v1, backends.reload)} />`}`, 13),
  ];
  return html`<${Resource} title="Backends" loaded=${backends} columns=${columns} keyOf=${(/** @type {Backend} */ backend) => backend.type}
      note="Clouds and clusters where machines are rented. The check calls the provider with the credentials that are stored."
      actions=${html`<${Button} small kind="primary" onClick=${() => setEdited({ type: null, text: START })}>Add a backend<//>`}
      empty=${html`<${Empty} title="No backends yet." next="Add one to rent machines, or use your own with an SSH fleet." />`} />
    ${edited && html`<${FormDialog} wide title=${edited.type ? `Edit ${edited.type}` : "Add a backend"} action="Save" onClose=${() => setEdited(null)} send=${save}
      fields=${[{ key: "config_yaml", label: "Configuration", kind: "area", rows: 14, start: edited.text, hint: "As under `backends` in the server’s file. Secrets that are hidden stay as they are." }]} />`}`;
}

const START = "type: aws\ncreds:\n  type: access_key\n  access_key: \n  secret_key: \n";

/** @param {{check: Checks[string] | undefined}} props */
function Check({ check }) {
  if (!check) return html`<span class="soft">not checked</span>`;
  if (check.state === "checking") return html`<${Status} value="provisioning" text="checking …" />`;
  return html`<span class="state"><${Status} value=${check.state === "good" ? "healthy" : "failed"} text=${check.state === "good" ? "works" : "refused"} /><span class="state-why" title=${check.why}>${check.why}</span></span>`;
}

/** @param {string} type @param {string} project @param {string} path @param {() => void} reload */
async function remove(type, project, path, reload) {
  const question = { title: `Delete the backend ${type}?`, text: `${project} rents no more machines there. Its credentials are erased.`, action: "Delete", danger: true };
  if (await askAndDo(question, () => send("DELETE", `${path}/${type}`), `The backend ${type} is deleted.`)) reload();
}
