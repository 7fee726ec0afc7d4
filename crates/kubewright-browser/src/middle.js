(selector) => {
  // Where to click an element, or why it can't be clicked.
  const element = document.querySelector(selector);
  if (!element) return 'there is none';
  element.scrollIntoView({ block: 'center', behavior: 'instant' });
  const box = element.getBoundingClientRect();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const hit = document.elementFromPoint(x, y);
  if (!hit || !(element.contains(hit) || hit.contains(element))) return `${hit?.outerHTML.slice(0, 100)} is in front of it`;
  return [x, y];
}
