// What a volume would cost, as far as that is known before it is made: providers tell the price of a disk that is there.
import { money } from "./money.js";

/** @typedef {{name: string, backend: string, region: string, size_gb: number | null, price_per_month_usd: number | null, created_at: string}} Priced */

const GB = /** @type {Record<string, number>} */ ({ M: 1 / 1024, G: 1, T: 1024 });

/** @param {string} text "100GB", "1.5 TB" @returns {number | null} */
export function gigabytes(text) {
  const found = /^(\d+(?:\.\d+)?)\s*([MGT])B?$/i.exec(text.trim());
  return found ? Number(found[1]) * /** @type {number} */ (GB[String(found[2]).toUpperCase()]) : null;
}

/** A sentence. @param {{backend: string, region: string, size: string}} wanted @param {Priced[]} volumes of the project */
export function priceBefore({ backend, region, size }, volumes) {
  const like = volumes.find((each) => each.backend === backend && each.region === region && each.price_per_month_usd !== null && each.size_gb);
  const gb = gigabytes(size);
  if (!like || gb === null) return `Its price a month isn’t known yet: ${backend || "the cloud"} tells it once the disk is there.`;
  const each = /** @type {number} */ (like.price_per_month_usd) / /** @type {number} */ (like.size_gb);
  return `About ${money(gb * each)} a month, if it is of the kind of ${like.name}: that costs ${money(each)} a GB in ${region}.`;
}
