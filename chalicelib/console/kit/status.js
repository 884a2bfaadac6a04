// The status of anything: an icon and a word, never a colour alone.
import { Icon } from "./icon.js";
import { html } from "./preact.js";

/** @type {Record<string, [string, string]>} */
const LOOKS = {
  running: ["good", "dot"], active: ["good", "dot"], busy: ["good", "dot"], healthy: ["good", "check"], ready: ["good", "check"],
  done: ["calm", "check"], idle: ["calm", "ring"], terminated: ["calm", "stop"], stopped: ["calm", "stop"],
  pending: ["wait", "clock"], submitted: ["wait", "clock"], waiting: ["wait", "clock"], provisioning: ["work", "ring"], pulling: ["work", "ring"],
  terminating: ["work", "ring"], failed: ["bad", "cross"], failure: ["bad", "cross"], aborted: ["bad", "cross"],
  warning: ["warn", "warning"], unreachable: ["warn", "warning"],
};

/** @param {{value: string, text?: string, title?: string}} props `text`: other words for it */
export function Status({ value, text, title }) {
  const [kind, icon] = LOOKS[value] ?? ["calm", "dot"];
  return html`<span class="status ${kind}" title=${title}><${Icon} name=${icon} /><span>${text ?? value}</span></span>`;
}
