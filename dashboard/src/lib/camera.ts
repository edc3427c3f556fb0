// Moving about a large drawing: which part of the world a canvas shows, and at which size.

export interface Camera {
  x: number;
  y: number;
  scale: number;
}

export interface Box {
  width: number;
  height: number;
}

/** All of the world in view, not larger than life. */
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

/** Nearer or farther, with the point under the pointer staying where it is. */
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
