// JSON as YAML that people read: what is the default is left out, amounts are written as in a configuration.

/** @typedef {any} Value of JSON */

const LONGEST = 100; // characters of a list on one line

/** A configuration as somebody would have written it. @param {any} spec */
export const specText = (spec) => yaml(tidy(spec));

/** What says nothing in a configuration: it is so anyway. @type {Record<string, Value>} */
const DEFAULTS = {
  priority: 0, privileged: false, home_dir: "/root", dstack: false, strip_prefix: true, auth: true, creation_policy: "reuse-or-create",
};
const FIRST = ["type", "name"];

/** @param {any} spec @returns {Value} */
export function tidy(spec) {
  const keys = Object.keys(spec).sort((a, b) => rank(a) - rank(b));
  /** @type {Record<string, Value>} */
  const found = {};
  for (const key of keys) {
    const value = key === "resources" ? resources(spec[key]) : bare(spec[key]);
    const absent = value === null || (typeof value === "object" && Object.keys(value).length === 0);
    if (!absent && value !== DEFAULTS[key]) found[key] = key === "ports" || key === "port" ? ports(value) : key === "replicas" ? range(value, "") : value;
  }
  return found;
}

/** @param {string} key */
const rank = (key) => (FIRST.includes(key) ? FIRST.indexOf(key) : FIRST.length);

/** Without what is null or empty. @param {any} value @returns {Value} */
function bare(value) {
  if (Array.isArray(value)) return value.map(bare);
  if (value === null || typeof value !== "object") return value;
  const kept = Object.entries(value).map(([key, inner]) => [key, bare(inner)]);
  return Object.fromEntries(kept.filter(([, inner]) => inner !== null && !(typeof inner === "object" && Object.keys(inner).length === 0)));
}

/** @param {any} given @returns {Value} */
function resources(given) {
  const { cpu, memory, disk, gpu, shm_size: shm } = given ?? {};
  const found = {
    cpu: cpu && [cpu.arch, range(cpu.count, "")].filter(Boolean).join(":"),
    memory: range(memory, "GB"),
    gpu: gpu && gpuText(gpu),
    disk: disk && range(disk.size, "GB"),
    shm_size: shm === null || shm === undefined ? null : `${shm}GB`,
  };
  const usual = { cpu: "2..", memory: "8GB..", gpu: "0..", disk: "100GB.." };
  return Object.fromEntries(Object.entries(found).filter(([key, value]) => value && value !== usual[/** @type {keyof typeof usual} */ (key)]));
}

/** @param {any} gpu @returns {Value} */
function gpuText(gpu) {
  const count = range(gpu.count, "");
  if (gpu.vendor || gpu.total_memory || gpu.compute_capability) return bare({ ...gpu, count, memory: range(gpu.memory, "GB"), total_memory: range(gpu.total_memory, "GB") });
  return [gpu.name?.join(","), range(gpu.memory, "GB"), count].filter(Boolean).join(":");
}

/** @param {any} given @param {string} unit @returns {any} "2..4", "8GB..", "1" */
export function range(given, unit) {
  if (given === null || given === undefined) return null;
  if (typeof given !== "object") return typeof given === "number" ? `${given}${unit}` : given; // a text has its unit
  if (!("min" in given || "max" in given)) return bare(given);
  const [low, high] = [given.min, given.max].map((each) => (each === null || each === undefined ? "" : `${each}${unit}`));
  return low === high ? low : `${low}..${high}`;
}

/** @param {any} value @returns {Value} */
function ports(value) {
  if (Array.isArray(value)) return value.map(ports);
  if (typeof value !== "object" || value === null) return value;
  const { local_port: local = null, container_port: remote } = value;
  return local === null ? `*:${remote}` : local === remote ? remote : `${local}:${remote}`;
}

/** @param {Value} value @param {number} [depth] @returns {string} */
export function yaml(value, depth = 0) {
  const indent = "  ".repeat(depth);
  if (Array.isArray(value)) {
    const short = value.length > 0 && value.every((each) => typeof each !== "object" && !/\s/.test(String(each))); // words, not sentences: commands have a line each
    const flow = `[${value.map((each) => scalar(each, depth, true)).join(", ")}]`;
    if (value.length === 0 || (short && value.length < 6 && flow.length + indent.length <= LONGEST && value.every((each) => String(each).length < 24))) return `${flow}\n`;
    return value.map((each) => `${indent}- ${nested(each, depth)}`).join("");
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    if (entries.length === 0) return "{}\n";
    return entries.map(([key, inner]) => `${indent}${scalar(key, depth, false)}:${below(inner, depth)}`).join("");
  }
  return `${scalar(value, depth, false)}\n`;
}

/** What follows a key. @param {Value} inner @param {number} depth */
function below(inner, depth) {
  if (inner === null || typeof inner !== "object") return ` ${scalar(inner, depth + 1, false)}\n`;
  const text = yaml(inner, depth + (Array.isArray(inner) ? 0 : 1));
  return /^[[{]/.test(text) ? ` ${text}` : `\n${Array.isArray(inner) ? yaml(inner, depth + 1) : text}`;
}

/** An entry of a list. @param {Value} each @param {number} depth */
function nested(each, depth) {
  if (each === null || typeof each !== "object") return `${scalar(each, depth + 1, false)}\n`;
  return yaml(each, depth + 1).trimStart();
}

const AMOUNT = /^(\d+(\.\d+)?(KB|MB|GB|TB|[smhdw])(\.\.(\d+(\.\d+)?(KB|MB|GB|TB))?)?|\d+\.\.\d*|\.\.\d+([KMGT]B)?)$/;
const PLAIN = /^(?:\.{0,2}\/|[A-Za-z_$~])[^\n:#,[\]{}"'`|>&*!%@]*$/;
const UNPRINTABLE = /[^\t\u0020-\u007e\u00a0-\ud7ff\ue000-\ufffd]/;
const WORDS = /^(true|false|null|yes|no|on|off|~|\.inf|\.nan)$/i;

/** @param {any} value @param {number} depth @param {boolean} flow */
function scalar(value, depth, flow) {
  if (typeof value !== "string") return String(value);
  const printable = !UNPRINTABLE.test(value.replaceAll("\n", ""));
  if (value.includes("\n") && value.trim() && !flow && printable) return block(value, depth);
  const plain = PLAIN.test(value) || AMOUNT.test(value);
  return plain && printable && !WORDS.test(value) && value === value.trim() ? value : JSON.stringify(value);
}

/** @param {string} value @param {number} depth */
function block(value, depth) {
  const indent = "  ".repeat(depth);
  const end = value.endsWith("\n") ? (value.endsWith("\n\n") ? "+" : "") : "-";
  const first = /^[ \n]/.test(value) ? "2" : "";
  const text = value.endsWith("\n") ? value.slice(0, -1) : value;
  return `|${first}${end}\n${text.split("\n").map((line) => (line ? indent + line : "")).join("\n")}`;
}
