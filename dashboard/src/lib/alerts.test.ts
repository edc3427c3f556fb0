import { describe, expect, test } from "vitest";
import type { AlertView, DeliveryView } from "../api/schema.gen";
import {
  channelAct,
  deliveryText,
  draftOf,
  figure,
  lengthWord,
  setAct,
  silenceAct,
  specOf,
} from "./alerts";

const RULE: AlertView = {
  name: "gpu-wait",
  condition: "wait",
  status: "ok",
  value: 3,
  threshold: 300,
  unit: "s",
  message: "",
  since: null,
  severity: "critical",
  queue: "gpu",
  window: 600,
  for: 90,
  at_least: 1,
  channels: ["on call"],
  repeat: 14_400,
  enabled: true,
  silence: null,
  builtin: false,
  meaning: "",
};

describe("a rule", () => {
  test("is sent as it was read", () => {
    expect(specOf(draftOf(RULE))).toEqual({
      condition: "wait",
      threshold: 300,
      window: "10m",
      for: "90s",
      at_least: 1,
      severity: "critical",
      queue: "gpu",
      channels: ["on call"],
      repeat: "4h",
    });
  });

  test("names its queue only where the condition knows one", () => {
    expect(specOf({ ...draftOf(RULE), condition: "disk_low" }).queue).toBeUndefined();
  });

  test("is the same as a command", () => {
    expect(setAct("gpu-wait", draftOf(RULE)).rota).toBe(
      "rota alerts set gpu-wait --condition wait --threshold 300 --window 10m --for 90s --at-least 1" +
        " --severity critical --queue gpu --channel 'on call' --repeat 4h",
    );
  });

  test("that tells nobody, or is off, says so in both", () => {
    const act = setAct("x", { ...draftOf(RULE), channels: [], enabled: false });
    expect(act.rota).toMatch(/ --nobody .*--off$/);
    expect(act.asked.body).toMatchObject({ channels: [], enabled: false });
  });
});

test("a silence without a reason sends none", () => {
  expect(silenceAct("wait", "2h", "").asked.body).toEqual({ for: "2h" });
  expect(silenceAct("wait", "2h", "racks").rota).toBe(
    "rota alerts silence wait --for 2h --reason racks",
  );
});

test("an address is sent but never shown", () => {
  const { act, shown } = channelAct("ops", {
    url: "https://hooks.example/hush",
    secret: "hush-hush-hush-hush",
    severity: "info",
  });
  expect(JSON.stringify(act.asked)).toContain("hush");
  expect(JSON.stringify(shown) + act.rota).not.toContain("hush");
});

test("figures are shown in their units", () => {
  expect(figure(0.256, "ratio")).toBe("25.6 %");
  expect(figure(1 << 30, "bytes")).toBe("1 GiB");
  expect(figure(2710, "s")).toBe("45 min 10 s");
  expect(figure(12_000, "jobs")).toBe("12,000 jobs");
  expect(figure(1, "jobs")).toBe("1 job");
  expect(figure(null, "jobs")).toBe("–");
});

test("lengths are in the largest unit that divides them", () => {
  expect([0, 45, 90, 600, 7200, 86_400].map(lengthWord)).toEqual([
    "0s",
    "45s",
    "90s",
    "10m",
    "2h",
    "1d",
  ]);
});

test("what became of a notice is said with its error", () => {
  const one: DeliveryView = {
    channel: "ops",
    status: "waiting",
    tries: 2,
    at: null,
    error: "it answered 503",
    next_try: null,
  };
  expect(deliveryText(one)).toBe("not delivered yet after 2 tries: it answered 503");
  expect(deliveryText({ ...one, tries: 0, error: null })).toBe("sending");
  expect(deliveryText({ ...one, status: "taken", tries: 1 })).toBe("taken");
});
