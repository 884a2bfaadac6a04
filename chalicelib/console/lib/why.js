// Why a run waits or failed to start: its reason in words, taken apart into what was ruled out, why, and what would help.

/** @typedef {{text: string, change: string | null}} Reason */

const LEADS = /^(nowhere to run|will be retried|waiting for quota): /;

/** @param {string | null} why @returns {Reason[]} */
export function reasonsOf(why) {
  let text = why ?? "";
  let lead = "";
  for (let match = LEADS.exec(text); match; match = LEADS.exec(text)) {
    if (match[1] === "waiting for quota") lead = "waiting for quota: ";
    text = text.slice(match[0].length);
  }
  return text ? parted(text).map((part) => reason(lead + part)) : [];
}

// Parts are between semicolons, but not those within a quoted name or brackets.
/** @param {string} text */
function parted(text) {
  const parts = [""];
  let quoted = false;
  let depth = 0;
  for (const char of text) {
    if (char === "`") quoted = !quoted;
    else if (!quoted && char === "(") depth++;
    else if (!quoted && char === ")") depth = Math.max(0, depth - 1);
    if (char === ";" && !quoted && depth === 0) parts.push("");
    else parts[parts.length - 1] += char;
  }
  return parts.map((part) => part.trim()).filter(Boolean);
}

/** A sentence whose end may be a change in brackets that would help. @param {string} text @returns {Reason} */
export function reason(text) {
  if (!text.endsWith(")")) return { text, change: null };
  let depth = 0;
  for (let at = text.length - 1; at > 0; at--) {
    if (text[at] === ")") depth++;
    if (text[at] === "(" && --depth === 0) {
      const change = text.slice(at + 1, -1);
      return /^[\d\s]|^in /.test(change) ? { text, change: null } : { text: text.slice(0, at).trim(), change };
    }
  }
  return { text, change: null };
}
