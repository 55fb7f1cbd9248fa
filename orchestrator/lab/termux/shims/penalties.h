/* Called by termux_passwd.c, which sees the configuration and the login names. */
void penalties_configure(const char *line);
void penalties_login_attempted(void);
