// Output for terminals: a line of a log to spans of text with classes for colours. Escape sequences that move a cursor
// or talk to a terminal are dropped; `\r`, a backspace and "erase" act within the line.

/** @typedef {{fg: string, bg: string, bold: boolean, dim: boolean, italic: boolean, underline: boolean, strike: boolean, inverse: boolean}} Style */
/** @typedef {{text: string, classes: string}} Span */
/** @typedef {{char: string, classes: string}} Cell */

/** @type {Readonly<Style>} */
export const PLAIN = Object.freeze({
  fg: "", bg: "", bold: false, dim: false, italic: false, underline: false, strike: false, inverse: false,
});

/** Longer lines are shown in part: nobody reads a megabyte, and no browser lays it out in a frame. */
export const SHOWN = 10_000;

const ESC = "\u001b";
// "Control sequence", "operating system command" and the like up to their ends, other short ones; then what has no ending.
const SEQUENCE = /\u001b(?:\[([0-?]*)[ -/]*([@-~])|[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|\[[0-?]*[ -/]*$|[ -/]*[0-~]|$)/g;
// Also marks of direction, which could show a text in another order than it was written.
const CONTROLS = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const UNSEEN = new RegExp(CONTROLS.source);
/** @type {Readonly<Cell>} */
const BLANK = Object.freeze({ char: " ", classes: "" });
const EDITS = /[\r\b]|\u001b\[[0-2]?K/;

/** The text of a line as a reader sees it, without any escape sequence.
 * @param {string} raw */
export function plain(raw) {
  if (!UNSEEN.test(raw)) return raw;
  return spans(raw, PLAIN, raw.length).map((span) => span.text).join("");
}

/** The style after a line: the next line begins with it.
 * @param {string} raw @param {Readonly<Style>} style @returns {Readonly<Style>} */
export function styleAfter(raw, style) {
  if (!raw.includes(ESC)) return style;
  for (const [, parameters, final] of raw.matchAll(SEQUENCE)) if (final === "m") style = graphic(style, parameters ?? "");
  return style;
}

/** The spans of a line that begins with this style.
 * @param {string} raw @param {Readonly<Style>} style @param {number} most of characters @returns {Span[]} */
export function spans(raw, style, most = SHOWN) {
  const line = shownPart(raw.endsWith("\r") ? raw.slice(0, -1) : raw, most);
  if (!line.includes(ESC) && !EDITS.test(line)) return joined([{ char: line.replace(CONTROLS, ""), classes: classesOf(style) }]);
  return EDITS.test(line) ? edited(line, style) : joined(pieces(line, style));
}

/** How much of a line isn't shown.
 * @param {string} raw */
export const unshown = (raw) => Math.max(0, raw.length - SHOWN);

// Of a line that was written over again and again, such as a progress bar, the end counts; of others, the beginning.
/** @param {string} line @param {number} most */
function shownPart(line, most) {
  if (line.length <= most) return line;
  if (!line.includes("\r")) return line.slice(0, most);
  const tail = line.slice(-most);
  return tail.slice(tail.indexOf("\r") + 1);
}

/** @param {string} line @param {Readonly<Style>} style @returns {Cell[]} */
function pieces(line, style) {
  const found = [];
  let place = 0;
  for (const match of line.matchAll(SEQUENCE)) {
    found.push({ char: line.slice(place, match.index).replace(CONTROLS, ""), classes: classesOf(style) });
    place = match.index + match[0].length;
    if (match[2] === "m") style = graphic(style, match[1] ?? "");
  }
  found.push({ char: line.slice(place).replace(CONTROLS, ""), classes: classesOf(style) });
  return found;
}

/** A line that is written over: one cell a character. @param {string} line @param {Readonly<Style>} style */
function edited(line, style) {
  /** @type {Readonly<Cell>[]} */
  const cells = [];
  let column = 0;
  /** @param {string} text */
  const write = (text) => {
    const classes = classesOf(style);
    for (const char of text) {
      if (char === "\r") column = 0;
      else if (char === "\b") column = Math.max(0, column - 1);
      else if (!UNSEEN.test(char)) {
        while (cells.length < column) cells.push(BLANK);
        cells[column++] = { char, classes };
      }
    }
  };
  let place = 0;
  for (const match of line.matchAll(SEQUENCE)) {
    write(line.slice(place, match.index));
    place = match.index + match[0].length;
    if (match[2] === "m") style = graphic(style, match[1] ?? "");
    if (match[2] === "K") erase(cells, column, match[1] ?? "");
  }
  write(line.slice(place));
  return joined(cells);
}

/** @param {Readonly<Cell>[]} cells @param {number} column @param {string} what */
function erase(cells, column, what) {
  if (what === "1") cells.fill(BLANK, 0, column + 1);
  else cells.length = what === "2" ? 0 : Math.min(cells.length, column);
}

/** @param {Readonly<Cell>[]} cells @returns {Span[]} */
function joined(cells) {
  /** @type {Span[]} */
  const found = [];
  for (const { char, classes } of cells) {
    const last = found[found.length - 1];
    if (char === "") continue;
    if (last && last.classes === classes) last.text += char;
    else found.push({ text: char, classes });
  }
  return found;
}

/** @param {Readonly<Style>} style @param {string} parameters @returns {Readonly<Style>} */
function graphic(style, parameters) {
  const codes = parameters.split(/[;:]/).map((code) => Number(code) || 0);
  const next = { ...style };
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at];
    if (code === 0) Object.assign(next, PLAIN);
    else if (code === 38 || code === 48) {
      const [colour, used] = chosen(codes.slice(at + 1));
      next[code === 38 ? "fg" : "bg"] = colour;
      at += used;
    } else change(next, code);
  }
  return Object.keys(PLAIN).every((key) => next[/** @type {keyof Style} */ (key)] === PLAIN[/** @type {keyof Style} */ (key)]) ? PLAIN : next;
}

/** @param {Style} style @param {number} code */
function change(style, code) {
  if (code === 1) style.bold = true;
  else if (code === 2) style.dim = true;
  else if (code === 3) style.italic = true;
  else if (code === 4 || code === 21) style.underline = true;
  else if (code === 7) style.inverse = true;
  else if (code === 9) style.strike = true;
  else if (code === 22) style.bold = style.dim = false;
  else if (code === 23) style.italic = false;
  else if (code === 24) style.underline = false;
  else if (code === 27) style.inverse = false;
  else if (code === 29) style.strike = false;
  else if (code === 39) style.fg = "";
  else if (code === 49) style.bg = "";
  else if (code >= 30 && code <= 37) style.fg = String(code - 30);
  else if (code >= 40 && code <= 47) style.bg = String(code - 40);
  else if (code >= 90 && code <= 97) style.fg = String(code - 82);
  else if (code >= 100 && code <= 107) style.bg = String(code - 92);
}

// One of 256 colours or of all: the nearest of the 16 that the page has in a legible form for light and dark.
/** @param {number[]} codes @returns {[string, number]} */
function chosen(codes) {
  if (codes[0] === 5) return [String(of256(codes[1] ?? 0)), 2];
  if (codes[0] === 2) return [String(nearest(codes[1] ?? 0, codes[2] ?? 0, codes[3] ?? 0)), 4];
  return ["", codes.length];
}

/** @param {number} index */
function of256(index) {
  if (index < 16) return index;
  if (index >= 232) return nearest(8 + (index - 232) * 10, 8 + (index - 232) * 10, 8 + (index - 232) * 10);
  const level = (/** @type {number} */ step) => (step === 0 ? 0 : 55 + step * 40);
  const cube = index - 16;
  return nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

/** @type {[number, number, number][]} */
const PALETTE = [
  [0, 0, 0], [170, 0, 0], [0, 170, 0], [170, 120, 0], [0, 0, 170], [170, 0, 170], [0, 170, 170], [190, 190, 190],
  [110, 110, 110], [255, 85, 85], [85, 255, 85], [255, 255, 85], [85, 85, 255], [255, 85, 255], [85, 255, 255], [255, 255, 255],
];

/** @param {number} red @param {number} green @param {number} blue */
function nearest(red, green, blue) {
  let best = 0;
  let least = Infinity;
  PALETTE.forEach(([r, g, b], index) => {
    const far = (r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2;
    if (far < least) [best, least] = [index, far];
  });
  return best;
}

/** @param {Readonly<Style>} style */
function classesOf(style) {
  if (style === PLAIN) return "";
  const found = [];
  if (style.fg) found.push(`fg-${style.fg}`);
  if (style.bg) found.push(`bg-${style.bg}`);
  for (const name of /** @type {const} */ (["bold", "dim", "italic", "underline", "strike", "inverse"])) if (style[name]) found.push(`ansi-${name}`);
  return found.join(" ");
}
