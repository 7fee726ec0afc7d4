(width) => {
  // What is wrong with a page, as sentences.
  const wrong = [];
  const say = (holds, complaint) => holds || wrong.push(complaint);
  const tag = (element) => element.outerHTML.slice(0, 100);
  const all = (selector) => [...document.querySelectorAll(selector)];
  say(document.documentElement.lang, 'the page has no lang');
  say(document.title.trim(), 'the page has no title');
  say(all('h1').length === 1, `the page has ${all('h1').length} h1`);
  say(all('main').length === 1, `the page has ${all('main').length} main`);
  say(document.querySelector('meta[name=viewport]'), 'the page does not mind small screens: no viewport');
  const named = (element) => element.getAttribute('aria-label')?.trim()
    || element.getAttribute('aria-labelledby')?.split(' ').every((id) => document.getElementById(id)?.textContent.trim());
  for (const field of all('input:not([type=hidden]), select, textarea'))
    say(named(field) || [...field.labels].some((label) => label.textContent.trim()), `no label: ${tag(field)}`);
  for (const button of all('button, a')) say(named(button) || button.textContent.trim(), `no text: ${tag(button)}`);
  for (const image of all('img:not([alt]), [role=img]')) say(named(image), `no alternative text: ${tag(image)}`);
  for (const element of all('[aria-describedby]'))
    for (const id of element.getAttribute('aria-describedby').split(' '))
      say(document.getElementById(id), `aria-describedby names ${id}, which is not there`);
  const reach = Math.max(document.documentElement.scrollWidth, document.body.scrollWidth);
  say(reach <= width, `it scrolls sideways: ${reach} px in ${width} px`);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    const right = Math.max(0, ...[...range.getClientRects()].map((box) => box.right));
    say(right <= width + 1 || !texts.currentNode.data.trim(),
      `text ends at ${Math.round(right)} px of ${width} px: ${texts.currentNode.data.trim().slice(0, 60)}`);
  }
  return wrong;
}
