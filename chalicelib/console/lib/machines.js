// What lists say of machines, volumes and gateways, in few words.
import { inOneUnit } from "./time.js";

/** @typedef {import("../types").Instance} Instance */
/** @typedef {import("../types").RunSummary} RunSummary */

const DAY = 24 * 3600 * 1000;
export const SOON_DAYS = 21; // left to a certificate: it is renewed earlier where that works

/** "8 × H100 80 GB" @param {import("../types").Resources["gpus"]} gpus */
export const gpusText = (gpus) => gpus.map(({ count, name, memory_gb: memory }) => `${count} × ${name} ${round(memory)} GB`).join(", ");

/** "64 CPUs · 512 GB · 100 GB disk" @param {import("../types").Resources} has */
export const sizeText = (has) => [`${has.cpus} ${has.cpus === 1 ? "CPU" : "CPUs"}`, `${round(has.memory_gb)} GB`, `${round(has.disk_gb)} GB disk`].join(" · ");

/** @param {number} value */
const round = (value) => (value >= 10 ? Math.round(value) : Math.round(value * 10) / 10);

/** The word for its status, and the look of it: a machine that is out of reach or ill is not just idle.
 * @param {Instance} instance @returns {{value: string, text?: string}} */
export function stateOf(instance) {
  const moving = ["pending", "provisioning", "terminating", "terminated"].includes(instance.status);
  if (instance.unreachable && !moving) return { value: "unreachable" };
  if (instance.health !== "healthy" && !moving) return { value: instance.health, text: `${instance.status}, ${instance.health}` };
  return { value: instance.status };
}

/** What is wrong with it, in words; empty: nothing. @param {Instance} instance */
export function troubleOf(instance) {
  const away = instance.unreachable ? "Its agent doesn't report: jobs on it may go on, and new ones don't come here." : "";
  return [away, instance.health_why, instance.why].filter(Boolean).join(" ");
}

/** Who has which block: one entry for each run of blocks that one job has, or nobody.
 * @param {Instance} instance @param {Map<string, RunSummary>} runs by id
 * @returns {{from: number, count: number, claim: Instance["claims"][number] | null, run: RunSummary | null}[]} */
export function blocksOf(instance, runs) {
  const owner = new Map(instance.claims.flatMap((claim) => claim.blocks.map((block) => [block, claim])));
  const found = /** @type {ReturnType<typeof blocksOf>} */ ([]);
  for (let block = 0; block < instance.blocks; block++) {
    const claim = owner.get(block) ?? null, last = found.at(-1);
    if (last && last.claim === claim) last.count += 1;
    else found.push({ from: block, count: 1, claim, run: (claim && runs.get(claim.run_id)) ?? null });
  }
  return found;
}

/** "train, replica 1, node 2" @param {Instance["claims"][number]} claim @param {RunSummary | null} run */
export function claimText(claim, run) {
  const parts = [run ? run.name : "a run that you can't see"];
  if (claim.replica > 0 || run?.type === "service") parts.push(`replica ${claim.replica}`);
  if (claim.node > 0) parts.push(`node ${claim.node}`);
  return parts.join(", ");
}

/** How long a certificate lasts. @param {import("../types").Gateway["certificates"][number]} certificate @param {number} now
 * @returns {{look: string, text: string}} */
export function certificateState({ status, expires_at: until }, now) {
  const left = until === null ? Number.NaN : Date.parse(until) - now;
  if (status === "failed" || status === "expired" || left <= 0) return { look: "failed", text: status === "failed" && left > 0 ? `renewal failed, ${inOneUnit(left)} left` : status === "failed" ? "failed" : "expired" };
  if (status === "requested" || Number.isNaN(left)) return { look: "provisioning", text: "requested" };
  return { look: left < SOON_DAYS * DAY ? "warning" : "healthy", text: `${inOneUnit(left)} left` };
}

/** What a gateway's certificates say in a list: the worst of them. @param {import("../types").GatewaySummary} gateway @param {number} now */
export function worstCertificate(gateway, now) {
  const order = ["failed", "warning", "provisioning", "healthy"];
  const states = gateway.certificates.map((each) => certificateState(each, now));
  return states.sort((one, two) => order.indexOf(one.look) - order.indexOf(two.look))[0] ?? null;
}

/** Whether names below the gateway's domain lead to it, as far as that is known: a certificate is issued only where they do.
 * @param {import("../types").GatewaySummary} gateway @returns {{look: string, text: string}} */
export function dnsState({ domain, hostname, certificates, status }) {
  if (!domain) return { look: "idle", text: "no domain" };
  if (!hostname) return { look: "pending", text: status === "failed" ? "no address" : "waits for its address" };
  if (certificates.some((each) => each.status === "issued")) return { look: "healthy", text: "leads here" };
  if (certificates.some((each) => each.status === "failed")) return { look: "failed", text: "see its certificates" };
  return { look: "pending", text: "not seen yet" };
}
