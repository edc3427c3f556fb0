// Renders /openapi.json for people.
"use strict";

function el(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function facts(pairs) {
  const list = el("dl", undefined, "facts");
  pairs.forEach(([name, value]) => list.append(el("dt", name), el("dd", value)));
  return list;
}

const json = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

function resolve(api, node) {
  if (!node.$ref) return node;
  return node.$ref.split("/").slice(1).reduce((at, key) => at[key], api);
}

function kind(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return `list of ${kind(schema.items || {})}`;
  return schema.format || schema.type || "any";
}

function content(title, media) {
  const [[type, body]] = Object.entries(media);
  const part = el("div");
  part.append(el("h3", `${title} (${type}${body.schema ? `, ${kind(body.schema)}` : ""})`));
  if (body.example !== undefined) part.append(el("pre", json(body.example)));
  return part;
}

function one(api, path, method, call) {
  const box = el("details");
  const head = el("summary");
  head.append(el("span", method.toUpperCase(), "method"), el("code", path), ` ${call.summary}`);
  box.append(head);
  if (call.description) box.append(el("p", call.description));
  if (call.parameters.length) {
    box.append(el("h3", "Parameters"), facts(call.parameters.map((parameter) => [
      `${parameter.name} (${parameter.in})`,
      [kind(parameter.schema), parameter.description].filter(Boolean).join(": "),
    ])));
  }
  if (call.requestBody) box.append(content("Body", call.requestBody.content));
  const responses = Object.entries(call.responses).map(([status, node]) => [status, resolve(api, node)]);
  responses.filter(([status, node]) => status < "300" && node.content)
    .forEach(([status, node]) => box.append(content(`Answer ${status}`, node.content)));
  box.append(el("h3", "Answers"), facts(responses.map(([status, node]) => [status, node.description])));
  return box;
}

async function render() {
  const api = await (await fetch("/openapi.json")).json();
  document.getElementById("intro").textContent = api.info.description;
  const parts = new Map(api.tags.map((tag) => [tag.name, el("section")]));
  for (const [name, part] of parts) part.append(el("h2", name));
  for (const [path, calls] of Object.entries(api.paths)) {
    for (const [method, call] of Object.entries(calls)) parts.get(call.tags[0]).append(one(api, path, method, call));
  }
  document.getElementById("calls").replaceChildren(...parts.values());
}

render();
