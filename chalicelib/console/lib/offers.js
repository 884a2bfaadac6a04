// Offers by what they have in common, and what to write to get one.
import { counted, rate } from "./money.js";

/** @typedef {import("../types").Offer} Offer */
/** @typedef {"gpu" | "backend" | "region" | "none"} By */
/** @typedef {{key: string, title: string, offers: Offer[], cheapest: Offer, backends: string[], regions: number, spot: boolean}} Group */

/** What a machine has, in the words of a configuration: `H100 80GB × 8`. @param {Offer["resources"]} resources */
export function gpuTitle({ gpus }) {
  if (gpus.length === 0) return "No GPU";
  return gpus.map((gpu) => `${gpu.name} ${size(gpu.memory_gb)}${gpu.count > 1 ? ` × ${gpu.count}` : ""}`).join(", ");
}

/** The kind of GPU, however many of it. @param {Offer["resources"]} resources */
export const gpuKind = ({ gpus }) => (gpus[0] ? `${gpus[0].name} ${size(gpus[0].memory_gb)}` : "No GPU");

/** @param {number} gb */
export const size = (gb) => `${Math.round(gb * 10) / 10}GB`;

/** @type {Record<By, (offer: Offer) => string>} */
const KEYS = {
  gpu: (offer) => gpuKind(offer.resources),
  backend: (offer) => offer.backend,
  region: (offer) => `${offer.backend} ${offer.region}`,
  none: () => "",
};

/** Groups in the order of their cheapest offers. @param {Offer[]} offers @param {By} by @returns {Group[]} */
export function grouped(offers, by) {
  /** @type {Map<string, Offer[]>} */
  const found = new Map();
  for (const offer of offers) {
    const key = KEYS[by](offer);
    found.set(key, [...(found.get(key) ?? []), offer]);
  }
  return [...found].map(([key, group]) => groupOf(key, group)).sort((one, two) => one.cheapest.price_per_hour_usd - two.cheapest.price_per_hour_usd);
}

/** @param {string} key @param {Offer[]} offers @returns {Group} */
function groupOf(key, offers) {
  const cheapest = offers.reduce((best, each) => (each.price_per_hour_usd < best.price_per_hour_usd ? each : best));
  const backends = [...new Set(offers.map((offer) => offer.backend))].sort();
  const regions = new Set(offers.map((offer) => `${offer.backend}/${offer.region}`)).size;
  return { key, title: key, offers, cheapest, backends, regions, spot: offers.some((offer) => offer.spot) };
}

/** The keys of a configuration that lead to this offer. @param {Offer} offer @returns {Record<string, string>} */
export function wanted(offer) {
  const [gpu] = offer.resources.gpus;
  return {
    ...(gpu ? { gpu: `${gpu.name}:${size(gpu.memory_gb)}:${gpu.count}` } : {}),
    backend: offer.backend,
    region: offer.region,
    spot: offer.spot ? "spot" : "on-demand",
  };
}

/** "2 machines at once, up to 4". @param {number} now @param {number | null} most */
export const machinesText = (now, most) => [counted(now, "machine"), "at once", ...(most === now ? [] : [most === null ? "and as many as runs need" : `and up to ${most}`])].join(" ");

/** What they cost: together where it is known how many there are. @param {import("../types").PlannedMachines} machines */
export function machinesCost({ most, cheapest_per_hour_usd: low, dearest_per_hour_usd: high }) {
  const each = low === high ? `${rate(low ?? 0)} each` : `${rate(low ?? 0)} to ${rate(high ?? 0)} each`;
  return most === null || most < 2 ? `${each}.` : `${each}, up to ${most} × ${rate(high ?? 0)} = ${rate(most * (high ?? 0))} together.`;
}
