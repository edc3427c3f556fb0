// A contiguous part of a log as bytes, with the offsets of its lines. It grows at both ends, so the end of a
// log of a hundred megabytes is shown without fetching all of it.

const NEWLINE = 10;
/** A line longer than this is cut for display; the bytes stay. */
export const LINE_CHARS_MAX = 4_000;

interface Block {
  bytes: Uint8Array;
  /** Offsets of lines in the block, except the first, which may begin in the block before. */
  breaks: Uint32Array;
}

const decoder = new TextDecoder("utf-8", { fatal: false });

export class LogWindow {
  /** Byte offsets in the log: the window is [start, end). */
  start: number;
  end: number;
  private blocks: Block[] = [];
  /** The number of line breaks before each block. */
  private before: number[] = [];
  private breaks = 0;

  constructor(offset = 0) {
    this.start = offset;
    this.end = offset;
  }

  append(bytes: Uint8Array): void {
    if (!bytes.length) return;
    const block = cut(bytes);
    this.before.push(this.breaks);
    this.blocks.push(block);
    this.breaks += block.breaks.length;
    this.end += bytes.length;
  }

  prepend(bytes: Uint8Array): number {
    if (!bytes.length) return 0;
    const block = cut(bytes);
    const added = block.breaks.length;
    this.blocks.unshift(block);
    this.before = [0, ...this.before.map((count) => count + added)];
    this.breaks += added;
    this.start -= bytes.length;
    return added;
  }

  get size(): number {
    return this.end - this.start;
  }

  /** The number of lines; the last one counts if it has text. */
  get lines(): number {
    if (!this.size) return 0;
    return this.breaks + (this.endsWithBreak() ? 0 : 1);
  }

  line(number: number): string {
    const bytes = this.bytesOf(number);
    const text = decoder.decode(
      bytes.length > LINE_CHARS_MAX ? bytes.slice(0, LINE_CHARS_MAX) : bytes,
    );
    return bytes.length > LINE_CHARS_MAX ? `${text} … ${bytes.length} bytes` : text;
  }

  /** The next line with this text (small letters) at or after `from`; -1: none up to `until`. */
  find(text: string, from: number, until: number): number {
    for (let number = from; number < until; number += 1)
      if (decoder.decode(this.bytesOf(number)).toLowerCase().includes(text)) return number;
    return -1;
  }

  private endsWithBreak(): boolean {
    const last = this.blocks.at(-1)?.bytes;
    return last !== undefined && last[last.length - 1] === NEWLINE;
  }

  private bytesOf(number: number): Uint8Array {
    const [startBlock, startAt] = this.place(number);
    const [endBlock, endAt] = this.place(number + 1);
    if (startBlock === endBlock) {
      return trimmed(this.blocks[startBlock]?.bytes.subarray(startAt, endAt) ?? new Uint8Array());
    }
    const parts: Uint8Array[] = [];
    for (let at = startBlock; at <= endBlock && at < this.blocks.length; at += 1) {
      const bytes = (this.blocks[at] as Block).bytes;
      parts.push(
        bytes.subarray(at === startBlock ? startAt : 0, at === endBlock ? endAt : bytes.length),
      );
    }
    return trimmed(joined(parts));
  }

  /** (block, index) of the beginning of line `number`; the end of the window for the line after the last. */
  private place(number: number): [number, number] {
    if (number <= 0) return [0, 0];
    if (number > this.breaks)
      return [this.blocks.length - 1, this.blocks.at(-1)?.bytes.length ?? 0];
    let low = 0;
    let high = this.blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.before[middle] as number) < number) low = middle;
      else high = middle - 1;
    }
    const block = this.blocks[low] as Block;
    return [low, block.breaks[number - (this.before[low] as number) - 1] as number];
  }
}

function cut(bytes: Uint8Array): Block {
  let count = 0;
  for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, at + 1)) count += 1;
  const breaks = new Uint32Array(count);
  let place = 0;
  for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, at + 1)) {
    breaks[place] = at + 1;
    place += 1;
  }
  return { bytes, breaks };
}

function trimmed(bytes: Uint8Array): Uint8Array {
  return bytes.length && bytes[bytes.length - 1] === NEWLINE
    ? bytes.subarray(0, bytes.length - 1)
    : bytes;
}

function joined(parts: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
