// ANSI colours: turns text with escape sequences into spans with class names.
// Removes all other sequences (cursor movement, titles, links).

export interface Piece {
  text: string;
  className: string;
}

interface Pen {
  fg: string;
  bg: string;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  inverse: boolean;
}

const PLAIN: Pen = {
  fg: "",
  bg: "",
  bold: false,
  dim: false,
  italic: false,
  underline: false,
  inverse: false,
};

const SEQUENCE =
  /\u001b(?:\[([0-9;:]*)([ -/]*)([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_]|\([0-9A-B])/g;

export function hasSequences(text: string): boolean {
  return text.includes("\u001b");
}

/** Several lines, without their colours. */
export function plainText(text: string): string {
  const rows = text.split("\n").map((row) => pieces(row));
  return rows.map((row) => row.map((piece) => piece.text).join("")).join("\n");
}

/** One line. Each starts without colour, so that any part of a log can be shown alone. */
export function pieces(line: string): Piece[] {
  const text = lastOverwrite(line);
  if (!hasSequences(text)) return [{ text: visible(text), className: "" }];
  const found: Piece[] = [];
  let pen = PLAIN;
  let at = 0;
  const push = (piece: string) => {
    const shown = visible(piece);
    if (shown) found.push({ text: shown, className: classOf(pen) });
  };
  for (const match of text.matchAll(SEQUENCE)) {
    push(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[3] === "m") pen = turned(pen, match[1] ?? "");
  }
  push(text.slice(at));
  return found;
}

/** Progress bars overwrite themselves with a carriage return: keeps the last one. */
function lastOverwrite(line: string): string {
  const trimmed = line.endsWith("\r") ? line.slice(0, -1) : line;
  const at = trimmed.lastIndexOf("\r");
  return at < 0 ? trimmed : trimmed.slice(at + 1);
}

/** Escapes control characters and marks that change the direction of text. */
function visible(text: string): string {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g,
    "\ufffd",
  );
}

function turned(pen: Pen, codes: string): Pen {
  const numbers = codes.split(/[;:]/).map((code) => Number(code || 0));
  let next = { ...pen };
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at] ?? 0;
    if (code === 38 || code === 48) {
      const [colour, used] = extended(numbers.slice(at + 1));
      if (code === 38) next.fg = colour;
      else next.bg = colour;
      at += used;
    } else next = applied(next, code);
  }
  return next;
}

function applied(pen: Pen, code: number): Pen {
  if (code === 0) return { ...PLAIN };
  if (code === 1) return { ...pen, bold: true };
  if (code === 2) return { ...pen, dim: true };
  if (code === 3) return { ...pen, italic: true };
  if (code === 4) return { ...pen, underline: true };
  if (code === 7) return { ...pen, inverse: true };
  if (code === 22) return { ...pen, bold: false, dim: false };
  if (code === 23) return { ...pen, italic: false };
  if (code === 24) return { ...pen, underline: false };
  if (code === 27) return { ...pen, inverse: false };
  if (code >= 30 && code <= 37) return { ...pen, fg: `f${code - 30}` };
  if (code === 39) return { ...pen, fg: "" };
  if (code >= 40 && code <= 47) return { ...pen, bg: `b${code - 40}` };
  if (code === 49) return { ...pen, bg: "" };
  if (code >= 90 && code <= 97) return { ...pen, fg: `f${code - 90 + 8}` };
  if (code >= 100 && code <= 107) return { ...pen, bg: `b${code - 100 + 8}` };
  return pen;
}

/** The first 16 of the 256 colours come from the theme; others become the nearest of these. */
function extended(rest: number[]): [string, number] {
  if (rest[0] === 5) {
    const index = rest[1] ?? 0;
    return [index < 16 ? `f${index}` : nearest(...cube(index)), 2];
  }
  if (rest[0] === 2) return [nearest(rest[1] ?? 0, rest[2] ?? 0, rest[3] ?? 0), 4];
  return ["", 1];
}

function cube(index: number): [number, number, number] {
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10;
    return [grey, grey, grey];
  }
  const step = (value: number) => (value === 0 ? 0 : 55 + value * 40);
  const left = index - 16;
  return [step(Math.floor(left / 36)), step(Math.floor(left / 6) % 6), step(left % 6)];
}

function nearest(red: number, green: number, blue: number): string {
  const most = Math.max(red, green, blue);
  const bits = (red > most / 2 ? 1 : 0) + (green > most / 2 ? 2 : 0) + (blue > most / 2 ? 4 : 0);
  if (most < 60) return "f8";
  return `f${(most > 170 ? 8 : 0) + bits}`;
}

function classOf(pen: Pen): string {
  const names: string[] = [];
  if (pen.fg) names.push(`ansi-${pen.fg}`);
  if (pen.bg) names.push(`ansi-${pen.bg.replace("f", "b")}`);
  for (const word of ["bold", "dim", "italic", "underline", "inverse"] as const)
    if (pen[word]) names.push(`ansi-${word}`);
  return names.join(" ");
}
