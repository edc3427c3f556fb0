// Zoom and pan of a canvas: which part of a drawing it shows, and at which scale.

export interface Camera {
  x: number;
  y: number;
  scale: number;
}

export interface Box {
  width: number;
  height: number;
}

/** Shows the whole drawing, without magnifying it. */
export function fitted(world: Box, view: Box, margin = 24): Camera {
  const scale = Math.min(
    1,
    (view.width - 2 * margin) / Math.max(1, world.width),
    (view.height - 2 * margin) / Math.max(1, world.height),
  );
  const safe = Math.max(0.005, scale);
  return {
    scale: safe,
    x: (world.width - view.width / safe) / 2,
    y: (world.height - view.height / safe) / 2,
  };
}

/** Zooms; the point under the pointer stays where it is. */
export function zoom(camera: Camera, factor: number, at: { x: number; y: number }): Camera {
  const scale = Math.min(3, Math.max(0.005, camera.scale * factor));
  return {
    scale,
    x: camera.x + at.x / camera.scale - at.x / scale,
    y: camera.y + at.y / camera.scale - at.y / scale,
  };
}

export function moved(camera: Camera, dx: number, dy: number): Camera {
  return { ...camera, x: camera.x - dx / camera.scale, y: camera.y - dy / camera.scale };
}
