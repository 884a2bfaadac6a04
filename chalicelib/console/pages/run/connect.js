import { post } from "../../data/api.js";
import { Button } from "../../kit/button.js";
import { Code } from "../../kit/code.js";
import { Empty } from "../../kit/empty.js";
import { Failed, Notice } from "../../kit/notice.js";
import { html, useEffect, useState } from "../../kit/preact.js";
import { Words } from "../../kit/words.js";
import { connectSteps } from "../../lib/connect.js";
import { hasEnded } from "../../lib/run_facts.js";

/** @typedef {{connection: any, problem: string}} Login */

/** @param {{run: import("../../types").Run}} props */
export function Connect({ run }) {
  const { login, error } = useLogin(run);
  if (hasEnded(run)) return html`<${Empty} title="It has ended." next="Nobody can connect to a run that has ended. Apply it again to get a new one." />`;
  const server = document.baseURI.split("#")[0] ?? "";
  const steps = connectSteps(run, { server, connection: login?.connection, problem: login?.problem });
  return html`<${Failed} error=${error} />
    ${run.status !== "running" && html`<${Notice}><p>It doesn't run yet. These steps work as soon as it does.</p><//>`}
    <ol class="steps">${steps.map(({ title, text, command, link }) => html`<li key=${title}><h2>${title}</h2><p><${Words} text=${text} /></p>
      ${command && html`<${Code} text=${command} copy label=${`Command: ${title}`} />`}
      ${link && html`<p><${Button} icon="external" href=${link.href} target=${link.href.startsWith("http") ? "_blank" : undefined} rel="noopener noreferrer">${link.label}<//></p>`}</li>`)}</ol>
    <p class="soft">Set the command line up once with <code>dstack login</code>, or with the line of <i>CLI setup</i> in the settings of the project.</p>`;
}

/** How its first job is reached, while it runs. @param {import("../../types").Run} run */
function useLogin(run) {
  const [state, setState] = useState(/** @type {{login: Login | null, error: any}} */ ({ login: null, error: null }));
  useEffect(() => {
    if (run.status !== "running") return;
    let over = false;
    post(`/project/${encodeURIComponent(run.project)}/runs/get`, { run_name: run.name })
      .then((/** @type {any} */ { jobs: [job] }) => !over && setState({ login: { connection: job?.job_connection_info, problem: job?.job_submissions.at(-1)?.login?.problem ?? "" }, error: null }))
      .catch((error) => !over && setState({ login: null, error }));
    return () => {
      over = true;
    };
  }, [run.id, run.status]);
  return state;
}
