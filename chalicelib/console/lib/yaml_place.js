// Where the cursor is in a configuration, in terms of its keys: enough of YAML's indentation for hints while somebody
// types. What the text means is decided by the server.

/** @typedef {{path: (string | number)[], key: string, value: string, column: number}} Place `key`: that of the line, if it has one */

const LINE = /^(\s*)((?:- +)*)(?:("?)([A-Za-z_][\w.-]*)\3:(?: +|$))?(.*)$/;

/** @param {string} line */
function parts(line) {
  const [, indent = "", dashes = "", , key = "", rest = ""] = LINE.exec(line) ?? [];
  return { indent: indent.length, inside: indent.length + dashes.length, items: dashes.split("-").length - 1, key, value: rest.trim() };
}

/** @param {string} line */
const isBlank = (line) => /^\s*(#.*)?$/.test(line);

/** The path to the mapping or the item that a line is in. @param {string} text @param {number} at a place in it @returns {Place} */
export function placeAt(text, at) {
  const before = text.slice(0, at), number = before.split("\n").length - 1;
  const column = before.length - before.lastIndexOf("\n") - 1;
  const lines = text.split("\n").slice(0, number + 1), line = lines.pop() ?? "";
  /** @type {Step[]} */
  let steps = [];
  for (const above of lines) if (!isBlank(above)) steps = after(steps, above);
  const { inside, key, value } = parts(line);
  steps = isBlank(line) ? steps.filter((step) => step.column < column) : items(steps, line).filter((step) => step.column < inside || (step.part === 0 && !key));
  return { path: steps.map((step) => step.part), key, value, column };
}

/** @typedef {{column: number, part: string | number}} Step */

/** The way to what follows a line. @param {Step[]} steps @param {string} line @returns {Step[]} */
function after(steps, line) {
  const { inside, key } = parts(line);
  const inItem = items(steps, line);
  return key ? [...inItem.filter((step) => step.column < inside), { column: inside, part: key }] : inItem;
}

/** The way to the item that a line begins, if it begins one. @param {Step[]} steps @param {string} line @returns {Step[]} */
function items(steps, line) {
  const { indent, inside, items: dashes } = parts(line);
  if (dashes === 0) return steps;
  const list = steps.filter((step) => step.column < indent || (step.column === indent && step.part !== 0));
  return [...list, ...Array.from({ length: dashes }, (_, nth) => ({ column: Math.min(indent + 2 * nth, inside - 1), part: 0 }))];
}

/** The value of a key at the top, as text: the `type` or the `name` of a configuration. @param {string} text @param {string} key */
export function topValue(text, key) {
  const found = new RegExp(`^${key}:[ \\t]*(?:"([^"\\n]*)"|'([^'\\n]*)'|([^#\\n]*?))[ \\t]*(?:#.*)?$`, "m").exec(text);
  return found ? (found[1] ?? found[2] ?? found[3] ?? "").trim() : "";
}

/** What Enter puts in: a new line that is indented like the one before it, and deeper after a key without a value.
 * @param {string} text @param {number} at */
export function newLine(text, at) {
  const line = text.slice(text.lastIndexOf("\n", at - 1) + 1, at);
  const { indent, inside, items, key, value } = parts(line);
  const opens = key !== "" && value === "" && line.trimEnd().endsWith(":");
  const next = " ".repeat(opens ? inside + 2 : items ? indent : inside);
  return `\n${next}${items && !key && value ? "- " : ""}`;
}
