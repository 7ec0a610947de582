// Pages of the site are called by their first heading, not by the path of their file.
export const load = (app) => {
  app.converter.on('createDocument', (_, page) => {
    const text = page.content.map((part) => part.text).join('');
    const heading = /^# (.+)$/m.exec(text);
    if (heading) page.name = heading[1];
  });
};
