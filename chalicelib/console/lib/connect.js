// How to get to a run: by kind, as steps that can be copied, and links.

/** @typedef {{title: string, text: string, command?: string, link?: {label: string, href: string}}} Step */
/** @typedef {{ide_name: string | null, attached_ide_url: string | null, attached_ssh_command: string[]}} Connection */

/**
 * @param {import("../types").Run} run @param {{server: string, connection?: Connection | null, problem?: string}} given `server`: its address,
 *   `connection` of its first job, while it runs; `problem`: why nobody can log in to it
 * @returns {Step[]} */
export function connectSteps(run, { server, connection = null, problem = "" }) {
  const spec = /** @type {any} */ (run.spec);
  const steps = [...serviceSteps(run, spec, server)];
  if (problem) return [...steps, { title: "Logging in", text: problem }];
  const name = run.name;
  steps.push({ title: "Attach", text: attachText(spec), command: `dstack attach ${name}` });
  steps.push({ title: "Log in", text: "While attached, in another terminal:", command: (connection?.attached_ssh_command ?? ["ssh", name]).join(" ") });
  if (connection?.attached_ide_url && isEditorLink(connection.attached_ide_url)) {
    const editor = connection.ide_name ?? "the editor";
    steps.push({ title: `Open in ${editor}`, text: "While attached, the link opens the folder on the machine.", link: { label: `Open in ${editor}`, href: connection.attached_ide_url } });
  }
  const ports = portsOf(spec);
  if (ports.length > 0) steps.push({ title: "Ports", text: `While attached, ${ports.map(portText).join(", ")}.` });
  return steps;
}

/** @param {import("../types").Run} run @param {any} spec @param {string} server @returns {Step[]} */
function serviceSteps(run, spec, server) {
  if (!run.service_url) return [];
  const { href: url, protocol } = new URL(run.service_url, server);
  if (!/^https?:$/.test(protocol)) return [];
  const header = spec.auth === false ? "" : ` \\\n  -H "Authorization: Bearer $DSTACK_TOKEN"`;
  const access = spec.auth === false ? "Anybody who reaches it may call it." : "Callers need a token of somebody in the project.";
  return [{ title: "Address", text: access, command: `curl ${url}${header}`, link: { label: url, href: url } }];
}

/** @param {any} spec */
const attachText = (spec) => (spec.type === "task" && portsOf(spec).length > 0 ? "Forwards its ports to your machine and stays until you press Ctrl-C, which leaves the run running." : "Stays until you press Ctrl-C, which leaves the run running.");

/** @param {any} spec @returns {{local: number | null, remote: number}[]} */
export function portsOf(spec) {
  return (spec.ports ?? []).map((/** @type {any} */ port) => ({ local: port.local_port ?? null, remote: port.container_port }));
}

/** @param {{local: number | null, remote: number}} port */
const portText = ({ local, remote }) => (local === null ? `a free port leads to port ${remote} of the job` : `localhost:${local} leads to port ${remote} of the job`);

/** A link that a browser may follow to an editor. @param {string} url */
export const isEditorLink = (url) => /^(vscode|vscode-insiders|cursor|windsurf|zed):\/\/[^\s]+$/.test(url);
