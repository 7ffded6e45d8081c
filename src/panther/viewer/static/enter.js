// The cookie is set: go on without the token, which thus stays out of the history. What follows # is kept.
location.replace(`./${location.hash}`);
