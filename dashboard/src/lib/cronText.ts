// Describes a cron expression in words, to check the input. The server decides what it
// means; for an unusual expression there is no description.

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];
const NICKNAMES: Record<string, string> = {
  "@yearly": "once a year, on 1 January at 00:00",
  "@annually": "once a year, on 1 January at 00:00",
  "@monthly": "on the first of each month at 00:00",
  "@weekly": "every Sunday at 00:00",
  "@daily": "every day at 00:00",
  "@midnight": "every day at 00:00",
  "@hourly": "every hour, on the hour",
};

export function cronWords(text: string, zone = "UTC"): string | null {
  const cron = text.trim();
  const place = zone === "UTC" ? "UTC" : (zone.split("/").pop() ?? zone).replaceAll("_", " ");
  const nickname = NICKNAMES[cron.toLowerCase()];
  if (nickname) return `${nickname}, ${place}`;
  const fields = cron.split(/\s+/);
  if (fields.length !== 5 && fields.length !== 6) return null;
  const [second, minute, hour, date, month, day] = fields.length === 6 ? fields : ["0", ...fields];
  const when = timeWords(second ?? "", minute ?? "", hour ?? "");
  const days = dayWords(date ?? "", day ?? "");
  const months = listWords(month ?? "", MONTHS, 1, "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC");
  if (when === null || days === null || months === null) return null;
  return [when, days, months && `in ${months}`, place].filter(Boolean).join(", ");
}

const NUMBER = /^\d+$/;
const two = (text: string): string => text.padStart(2, "0");

function timeWords(second: string, minute: string, hour: string): string | null {
  const hours = hour.split(",");
  const minutes = minute.split(",");
  if (hours.every((one) => NUMBER.test(one)) && minutes.every((one) => NUMBER.test(one))) {
    if (!NUMBER.test(second) || hours.length * minutes.length > 6) return null;
    const tail = second === "0" || second === "00" ? "" : `:${two(second)}`;
    const times = hours.flatMap((h) => minutes.map((m) => `${two(h)}:${two(m)}${tail}`));
    return `at ${joined(times)}`;
  }
  if (second !== "0" && second !== "00") {
    const every = step(second);
    return every && minute === "*" && hour === "*" ? `every ${unit(every, "second")}` : null;
  }
  const span = spanWords(hour);
  if (minute === "*") return hour === "*" ? "every minute" : span && `every minute ${span}`;
  const every = step(minute);
  if (every)
    return hour === "*"
      ? `every ${unit(every, "minute")}`
      : span && `every ${unit(every, "minute")} ${span}`;
  if (!minutes.every((one) => NUMBER.test(one))) return null;
  const past = joined(minutes.map((one) => `:${two(one)}`));
  if (hour === "*") return `every hour at ${past}`;
  const hourly = step(hour);
  if (hourly) return `every ${unit(hourly, "hour")} at ${past}`;
  return span && `every hour at ${past} ${span}`;
}

function spanWords(hour: string): string | null {
  const range = /^(\d+)-(\d+)$/.exec(hour);
  if (range) return `from ${two(range[1] ?? "")}:00 to ${two(range[2] ?? "")}:59`;
  return NUMBER.test(hour) ? `between ${two(hour)}:00 and ${two(hour)}:59` : null;
}

function step(field: string): number | null {
  const found = /^\*\/(\d+)$/.exec(field);
  return found ? Number(found[1]) : field === "*" ? 1 : null;
}

const unit = (every: number, word: string): string => (every === 1 ? word : `${every} ${word}s`);

function dayWords(date: string, day: string): string | null {
  const days = listWords(day === "?" ? "*" : day, [...DAYS, "Sunday"], 0, "SUNMONTUEWEDTHUFRISAT");
  if (days === null) return null;
  const any = date === "*" || date === "?";
  if (any) return days || "every day";
  const dates = date === "L" ? "the last day of the month" : dateWords(date);
  if (dates === null) return null;
  return days ? `on ${dates} or on ${days}` : `on ${dates}`;
}

function dateWords(field: string): string | null {
  const dates = field.split(",");
  if (!dates.every((one) => /^\d+(-\d+)?$/.test(one))) return null;
  return `the ${joined(dates.map((one) => one.replace("-", " to the ")))}`;
}

/** Names for numbers or short names; "" for any, null for unusual values. */
function listWords(
  field: string,
  names: readonly string[],
  first: number,
  shorts: string,
): string | null {
  if (field === "*") return "";
  const name = (text: string): string | null => {
    if (NUMBER.test(text)) return names[Number(text) - first] ?? null;
    const at = shorts.indexOf(text.toUpperCase());
    return text.length === 3 && at >= 0 && at % 3 === 0 ? (names[at / 3] ?? null) : null;
  };
  const words: string[] = [];
  for (const part of field.split(",")) {
    const ends = part.split("-").map(name);
    if (ends.length > 2 || ends.some((one) => one === null)) return null;
    words.push(ends.join(" to "));
  }
  return joined(words);
}

function joined(words: readonly string[]): string {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
