// Layout of a dependency graph from left to right: each job is one layer after its last dependency,
// and near its neighbours inside the layer. Linear in the size of the graph, for thousands of jobs.

export interface Node {
  id: string;
}
export interface Edge {
  from: string;
  to: string;
}
export interface Spot {
  x: number;
  y: number;
}

const SWEEPS = 4;

export function layers(nodes: readonly Node[], edges: readonly Edge[]): Map<string, Spot> {
  const ids = nodes.map((node) => node.id);
  const { into, out } = neighbours(ids, edges);
  const depth = depths(ids, into, out);
  const rows: string[][] = [];
  for (const id of ids) {
    const at = depth.get(id) ?? 0;
    while (rows.length <= at) rows.push([]);
    (rows[at] as string[]).push(id);
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forward = sweep % 2 === 0;
    const order = forward ? rows : [...rows].reverse();
    sortByNeighbours(order, forward ? into : out);
  }
  return spots(rows);
}

function neighbours(ids: readonly string[], edges: readonly Edge[]) {
  const into = new Map<string, string[]>(ids.map((id) => [id, []]));
  const out = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const edge of edges) {
    into.get(edge.to)?.push(edge.from);
    out.get(edge.from)?.push(edge.to);
  }
  return { into, out };
}

/** The longest path to each job; jobs on a cycle stay in the first layer. */
function depths(
  ids: readonly string[],
  into: Map<string, string[]>,
  out: Map<string, string[]>,
): Map<string, number> {
  const depth = new Map<string, number>();
  const left = new Map(ids.map((id) => [id, into.get(id)?.length ?? 0]));
  const ready = ids.filter((id) => left.get(id) === 0);
  for (const id of ready) depth.set(id, 0);
  for (let at = 0; at < ready.length; at += 1) {
    const id = ready[at] as string;
    for (const next of out.get(id) ?? []) {
      depth.set(next, Math.max(depth.get(next) ?? 0, (depth.get(id) ?? 0) + 1));
      const rest = (left.get(next) ?? 1) - 1;
      left.set(next, rest);
      if (rest === 0) ready.push(next);
    }
  }
  return depth;
}

function sortByNeighbours(rows: string[][], near: Map<string, string[]>): void {
  const place = new Map<string, number>();
  for (const row of rows) {
    const middle = new Map<string, number>();
    for (const [at, id] of row.entries()) {
      const known = (near.get(id) ?? [])
        .map((one) => place.get(one))
        .filter((one) => one !== undefined);
      const sum = known.reduce((total, one) => total + one, 0);
      middle.set(id, known.length ? sum / known.length : at / Math.max(1, row.length));
    }
    row.sort((one, other) => (middle.get(one) ?? 0) - (middle.get(other) ?? 0));
    for (const [at, id] of row.entries()) place.set(id, at / Math.max(1, row.length));
  }
}

function spots(rows: readonly string[][]): Map<string, Spot> {
  const found = new Map<string, Spot>();
  const tallest = Math.max(...rows.map((row) => row.length), 1);
  for (const [x, row] of rows.entries()) {
    const shift = (tallest - row.length) / 2;
    for (const [y, id] of row.entries()) found.set(id, { x, y: y + shift });
  }
  return found;
}
