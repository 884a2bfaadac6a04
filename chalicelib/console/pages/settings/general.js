import { HOME } from "../../app/pages.js";
import { go, link } from "../../app/router.js";
import { get, send } from "../../data/api.js";
import { reloadProjects, useSession } from "../../data/session.js";
import { useLoaded } from "../../data/use_loaded.js";
import { Button } from "../../kit/button.js";
import { Code } from "../../kit/code.js";
import { Loading } from "../../kit/empty.js";
import { Failed } from "../../kit/notice.js";
import { Facts, Section } from "../../kit/page.js";
import { html } from "../../kit/preact.js";
import { askAndDo } from "../../kit/resource.js";
import { Ago } from "../../kit/time.js";

/** @param {{project: string}} props */
export function General({ project }) {
  const { can } = useSession(project);
  const path = `/projects/${encodeURIComponent(project)}`;
  const { value, error, reload } = useLoaded(() => get(path), [path]);
  if (error) return html`<${Failed} error=${error} retry=${reload} />`;
  if (!value) return html`<${Loading} />`;
  return html`
    <${Section} title=${value.name} actions=${can("administer", project) && html`<${Button} small onClick=${() => share(value, path, reload)}>${value.public ? "Make private" : "Make public"}<//>`}>
      <${Facts} items=${[["Owner", value.owner], ["Who sees it", value.public ? "everybody on this server, and anybody may join" : "its members"], ["Created", html`<${Ago} at=${value.created_at} />`]]} />
    <//>
    <${Section} title="From the command line" note="This enters the project on another machine. Then paste an access token there, and press Enter: “Your account” makes one.">
      <${Code} copy label="Command" text=${`dstack project add --name ${project} --url ${new URL(".", document.baseURI).href.replace(/\/$/, "")} --token -`} />
    <//>
    ${can("administer", project) && html`<${Section} title="Delete this project" note="Its runs must have ended, and its fleets, volumes and gateways must be gone."
      actions=${html`<${Button} small kind="danger" onClick=${() => remove(project, path)}>Delete ${project}<//>`} />`}`;
}

/** @param {{name: string, public: boolean}} project @param {string} path @param {() => void} reload */
async function share({ name, public: open }, path, reload) {
  const text = open ? "Only its members see it from then on." : "Everybody on this server sees it then, and anybody may join it as a user.";
  const action = open ? "Make private" : "Make public";
  if (await askAndDo({ title: `${action}: ${name}?`, text, action }, () => send("PATCH", path, { public: !open }), `${name} is ${open ? "private" : "public"}.`)) reload();
}

/** @param {string} project @param {string} path */
async function remove(project, path) {
  const question = { title: `Delete ${project}?`, text: "Its runs, logs, secrets and settings go with it. This can’t be undone.", action: "Delete", danger: true, typed: project };
  if (!(await askAndDo(question, () => send("DELETE", path), `${project} is deleted.`))) return;
  await reloadProjects();
  go(link(null, HOME));
}
